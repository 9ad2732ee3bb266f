package raftfsm

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// identity says who a data directory is. It is written and synced before the
// server's first vote: a voter that lost its disk and voted again under its
// old name could help to vote committed writes away.
type identity struct {
	Server  uint32            `json:"server"`
	Birth   string            `json:"birth"`             // of this directory, random
	Cluster string            `json:"cluster,omitempty"` // empty: not part of a cluster yet
	Births  map[uint32]string `json:"births,omitempty"`  // of all servers, as the cluster was formed
	Peers   map[uint32]string `json:"peers,omitempty"`   // and their addresses
}

const identityFile = "identity"

// dataDir is a data directory in use by this process.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir creates the directory if need be and locks it against other
// processes.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process; stop it, or choose another --data-dir", path)
	}
	return &dataDir{path, lock}, nil
}

func (d *dataDir) close() error { return d.lock.Close() }

func (d *dataDir) sub(name string) string { return filepath.Join(d.path, name) }

// loadIdentity reads the identity, or makes a new one for an empty directory.
func (d *dataDir) loadIdentity(server uint32, rand io.Reader) (identity, error) {
	b, err := os.ReadFile(d.sub(identityFile))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(d.sub("raft")); err == nil {
			return identity{}, fmt.Errorf("data directory %s holds a log but no identity file: it is damaged; restore the file, or remove the directory and add this server again as a new one", d.path)
		}
		id := identity{Server: server, Birth: randomID(rand)}
		return id, d.saveIdentity(id)
	}
	if err != nil {
		return identity{}, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.Birth == "" {
		return identity{}, fmt.Errorf("%s is damaged: %v", d.sub(identityFile), err)
	}
	if id.Server != server {
		return identity{}, fmt.Errorf("data directory %s belongs to server %d, but --id is %d", d.path, id.Server, server)
	}
	return id, nil
}

// saveIdentity writes the identity durably, whole or not at all.
func (d *dataDir) saveIdentity(id identity) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	tmp := d.sub(identityFile + ".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, d.sub(identityFile)); err != nil {
		return err
	}
	return syncDir(d.path)
}

func randomInt(rand io.Reader) int64 {
	var b [8]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}

func randomID(rand io.Reader) string {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}
