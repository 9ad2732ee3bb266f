package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FileStore is a [Store] of one small file per resource, shared by all processes of a machine that name the
// same directory. It is durable: Raise returns after the token is on disk. The directory must be on a file
// system of this machine, because the locks beside the files work only on one machine.
//
// [Gate.Do] with a FileStore is one step for all these processes: the check and the write of two holds never
// overlap.
type FileStore struct {
	dir string
	// syncFile makes a file durable, and syncDir the names in a directory. Tests replace both functions to
	// observe in which order files and directories are synced.
	syncFile func(*os.File) error
	syncDir  func(string) error

	mu      sync.Mutex
	durable map[string]Token // tokens that are certainly on the disk
}

// NewFileStore returns a store in dir, which it creates if it is missing.
func NewFileStore(dir string) (*FileStore, error) { return newFileStore(dir, syncDir) }

func newFileStore(dir string, syncDir func(string) error) (*FileStore, error) {
	if err := makeDir(filepath.Clean(dir), syncDir); err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	return &FileStore{dir: dir, syncFile: (*os.File).Sync, syncDir: syncDir, durable: map[string]Token{}}, nil
}

// makeDir makes a directory, and all missing directories above it, durably. If a loss of power undid the
// directory, its tokens would be lost.
func makeDir(dir string, syncDir func(string) error) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeDir(filepath.Dir(dir), syncDir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Load implements [Store]. A file without a token is an error and does not count as 0, because a lost token
// must not admit old holders.
func (s *FileStore) Load(_ context.Context, res string) (Token, error) {
	b, err := os.ReadFile(s.file(res, ".token"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return ParseToken(strings.TrimSuffix(string(b), "\n"))
}

// Raise implements [Store].
func (s *FileStore) Raise(ctx context.Context, res string, t Token) (bool, error) {
	unlock, _, err := s.lock(ctx, s.file(res, ".lock"), false)
	if err != nil {
		return false, err
	}
	defer unlock()
	highest, err := s.Load(ctx, res)
	switch {
	case err != nil || t < highest:
		return false, err
	case t > highest:
		err = s.write(res, t)
	case !s.known(res, t):
		// Another process may have written the file but not synced the directory yet, so sync it now.
		err = s.syncDir(s.dir)
	}
	if err == nil {
		s.mu.Lock()
		s.durable[res] = t
		s.mu.Unlock()
	}
	return true, err
}

// known() reports whether t is certainly on the disk.
func (s *FileStore) known(res string, t Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durable[res] == t
}

// exclude() blocks every other Gate.Do of the resource on this machine, except that readers do not block each
// other. Raise locks another file, because Do calls Raise while this file is locked.
func (s *FileStore) exclude(ctx context.Context, res string, m Mode) (unlock func(), waited bool, err error) {
	return s.lock(ctx, s.file(res, ".do"), m == Shared)
}

// write() replaces the token file in one step, durably.
func (s *FileStore) write(res string, t Token) error {
	tmp, err := os.CreateTemp(s.dir, ".token-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after a success the file has its new name, and Remove fails
	_, err = tmp.WriteString(t.String() + "\n")
	if err == nil {
		err = s.syncFile(tmp)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), s.file(res, ".token"))
	}
	if err != nil {
		return err
	}
	return s.syncDir(s.dir)
}

// file() returns the path of a file of the resource. The name of the file is readable if possible,
// and never equal to a name for another resource.
func (s *FileStore) file(res, suffix string) string {
	// Most resources are paths, whose slashes become %2F.
	name := url.PathEscape(res)
	if len(name) > 200 || name == "" || name[0] == '.' {
		sum := sha256.Sum256([]byte(res))
		// An escaped name has two hexadecimal digits after every %, so no escaped name is equal to this name.
		name = "%sha256-" + hex.EncodeToString(sum[:])
	}
	return filepath.Join(s.dir, name+suffix)
}

// lock() takes the local lock of a file, and repeats the attempt until ctx ends. The result `waited` is true
// if the first attempt failed.
func (s *FileStore) lock(
	ctx context.Context, name string, shared bool,
) (unlock func(), waited bool, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		ok, err := tryLockFile(f, shared)
		if err != nil {
			f.Close()
			return nil, false, fmt.Errorf("lock %s: %w", name, err)
		}
		if ok {
			// Closing the descriptor releases the lock.
			return func() { f.Close() }, waited, nil
		}
		waited = true
		select {
		case <-ctx.Done():
			f.Close()
			return nil, false, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
