package disk

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Identity names a data directory. The server writes and syncs it before its first vote: a voter that loses
// its disk and votes again under its old name could help to elect a leader that lacks committed writes.
type Identity struct {
	Server      uint32 `json:"server"`
	Incarnation string `json:"incarnation"`       // random name of this directory
	Cluster     string `json:"cluster,omitempty"` // empty: not part of a cluster yet
	// incarnations of all servers when the cluster was formed
	Incarnations map[uint32]string `json:"incarnations,omitempty"`
	// addresses of all servers when the cluster was formed
	Peers     map[uint32]string `json:"peers,omitempty"`
	Observers []uint32          `json:"observers,omitempty"`

	// Expected is the index of a log entry. At that entry the cluster expected this server with an empty
	// directory, and admitted this directory. Before that entry the log may name other directories for this
	// server; they are older. Expected is 0 if this server was a member when the cluster formed.
	Expected uint64 `json:"expected,omitempty"`

	// Start is how often a server was started on the directory, and Life is a random name of its last start.
	// They differ between the directory and a copy of it.
	Start uint64 `json:"start,omitempty"`
	Life  string `json:"life,omitempty"`
	// Begun says that the directory has a term, and a log or a snapshot. If one of them is missing later,
	// that is an error.
	Begun    bool   `json:"begun,omitempty"`
	LogStore string `json:"log,omitempty"` // the kind of the log
	// Sum, which is the last field, is the checksum of all bytes of the file before it.
	Sum string `json:"sum,omitempty"`
}

const (
	identityFile = "identity"
	seenFile     = "seen" // progress that other servers have shown; the file is optional
)

// dataDir is a data directory in use by this process.
type dataDir struct {
	path  string
	files *Files
	lock  *os.File // nil in a simulation
}

// Files replace the operating system's files of a data directory in a simulation.
type Files struct {
	FS vfs.FS
	// Stable replaces bolt, which needs a real file because it maps its file into memory; nil: bolt.
	Stable raft.StableStore
	Log    seglog.Options
}

var osFiles = &Files{FS: vfs.OS}

// openDataDir creates the directory if it does not exist, and locks it against other processes.
func openDataDir(path string, files *Files) (*dataDir, error) {
	if err := makeDir(files.FS, path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if files != osFiles {
		return &dataDir{path: path, files: files}, nil
	}
	if err := RefuseForeign(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := lockFile(lock, false); err != nil {
		lock.Close()
		return nil, fmt.Errorf(
			"data directory %s is in use by another process; stop it, or choose another --data-dir", path)
	}
	return &dataDir{path, files, lock}, nil
}

// makeDir makes a directory that is still there after a loss of power.
func makeDir(fs vfs.FS, path string) error {
	var made []string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if there, err := vfs.Exists(fs, p); err != nil || there || p == filepath.Dir(p) {
			break // after an error, too: if the error matters, MkdirAll fails
		}
		made = append(made, p)
	}
	if err := fs.MkdirAll(path); err != nil {
		return err
	}
	for _, p := range made {
		if err := fs.SyncDir(filepath.Dir(p)); err != nil {
			return err
		}
	}
	return nil
}

func (d *dataDir) close() error {
	if d.lock == nil {
		return nil
	}
	return unlockFile(d.lock)
}

func (d *dataDir) sub(name string) string { return filepath.Join(d.path, name) }

// loadIdentity reads the identity, or makes a new one for an empty directory.
func (d *dataDir) loadIdentity(server uint32, rand io.Reader) (Identity, error) {
	if err := checkReplaced(d.files.FS, d.path); err != nil {
		return Identity{}, err
	}
	id, err := readIdentity(d.files.FS, d.path)
	if errors.Is(err, errNoIdentity) {
		for _, part := range []string{"raft", "snapshots"} {
			if there, err := vfs.Exists(d.files.FS, d.sub(part)); err == nil && there {
				return Identity{}, fmt.Errorf(
					"data directory %s holds %s but no identity file: it is damaged; restore the file, or remove the "+
						"directory and add this server again as a new one", d.path, part)
			}
		}
		id := Identity{Server: server, Incarnation: NewID(rand)}
		return id, d.saveIdentity(id)
	}
	if err != nil {
		return Identity{}, err
	}
	if id.Server != server {
		return Identity{}, fmt.Errorf("data directory %s belongs to server %d, but --id is %d", d.path, id.Server,
			server)
	}
	return id, nil
}

var errNoIdentity = fmt.Errorf("it has no file %q", identityFile)

// readIdentity reads the identity of a data directory.
func readIdentity(fs vfs.FS, dir string) (Identity, error) {
	file := filepath.Join(dir, identityFile)
	b, err := vfs.ReadFile(fs, file)
	if errors.Is(err, os.ErrNotExist) {
		return Identity{}, fmt.Errorf("%s is not a data directory of a zlockd: %w", dir, errNoIdentity)
	}
	if err != nil {
		return Identity{}, err
	}
	id, err := parseIdentity(b)
	if err != nil {
		return Identity{}, fmt.Errorf(
			"%s is damaged: %w; restore the file, or remove the directory and add this server again as a new one",
			file, err)
	}
	return id, nil
}

// sumField is the text in front of the checksum; the checksum covers all bytes before this text.
const sumField = "\n  \"sum\": \""

func identitySum(b []byte) string {
	if at := bytes.LastIndex(b, []byte(sumField)); at >= 0 {
		b = b[:at]
	}
	return fmt.Sprintf("%08x", crc32.Checksum(b, crcTable))
}

// parseIdentity reads an identity.
func parseIdentity(b []byte) (id Identity, err error) {
	switch err := json.Unmarshal(b, &id); {
	case err != nil:
		return Identity{}, err
	case id.Sum != identitySum(b):
		return Identity{}, errors.New("its checksum is wrong")
	case id.Incarnation == "":
		return Identity{}, errors.New("it names no server")
	}
	id.Sum = ""
	return id, nil
}

// encodeIdentity returns an identity in the form that parseIdentity reads.
func encodeIdentity(id Identity) ([]byte, error) {
	id.Sum = "none yet" // the field must be present; its value is replaced below
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return nil, err
	}
	id.Sum = identitySum(b)
	b, err = json.MarshalIndent(id, "", "  ")
	return append(b, '\n'), err
}

// saveIdentity writes the identity durably, whole or not at all.
func (d *dataDir) saveIdentity(id Identity) error {
	b, err := encodeIdentity(id)
	if err != nil {
		return err
	}
	return d.save(identityFile, b)
}

// save() writes a file durably, whole or not at all.
func (d *dataDir) save(name string, b []byte) error { return vfs.WriteFile(d.files.FS, d.sub(name), b) }

// NewID returns a random name that no other call has returned.
func NewID(rand io.Reader) string {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}
