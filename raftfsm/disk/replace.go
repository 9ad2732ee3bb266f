package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// While Replace works on a directory, its new content stands in replacingDir; no server starts on
// it.
const replacingDir = "recovering"

// parts of a data directory. The identity goes first and comes last: without it no server can
// start.
var parts = []string{identityFile, "raft", "snapshots", seenFile}

// Replace makes the data directory begin again, as Found does, and keeps the old content in a
// directory called old within it. The content that an earlier Replace kept there gets a number
// behind its name. was is the identity of the directory when f and write were made from it: no
// server may have been started on it since. Another call finishes a Replace that was interrupted.
func Replace(dir, old string, was Identity, f Founding, write func(io.Writer) error) error {
	return alone(dir, func() error {
		if Interrupted(dir) {
			return finishReplace(dir, old)
		}
		if is, err := readIdentity(vfs.ReadOnly, dir); err != nil {
			return err
		} else if is.Start != was.Start || is.Life != was.Life {
			return fmt.Errorf("a server was started on %s meanwhile: give the command again", dir)
		}
		next := filepath.Join(dir, replacingDir)
		if err := os.RemoveAll(next); err != nil {
			return err
		}
		if err := numberOld(filepath.Join(dir, old)); err != nil {
			return err
		}
		if err := Found(next, f, write); err != nil {
			return err
		}
		return finishReplace(dir, old)
	})
}

// alone runs f while no server can start on the directory.
func alone(dir string, f func() error) error {
	d, err := openDataDir(dir, osFiles)
	if err != nil {
		return err
	}
	return errors.Join(f(), d.close())
}

// numberOld makes room for a directory under its name.
func numberOld(old string) error {
	to := old
	for n := 1; ; n++ {
		_, err := os.Lstat(to)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		to = fmt.Sprintf("%s-%d", old, n)
	}
	if to == old {
		return nil
	}
	// Otherwise finishReplace would take the next content for moved already.
	return errors.Join(os.Rename(old, to), vfs.OS.SyncDir(filepath.Dir(old)))
}

// Interrupted reports whether a Replace got so far that only Replace can go on.
func Interrupted(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, replacingDir, identityFile))
	return err == nil
}

// FinishReplace goes on where a Replace was interrupted.
func FinishReplace(dir, old string) error {
	return alone(dir, func() error { return finishReplace(dir, old) })
}

func finishReplace(dir, old string) error {
	next, old := filepath.Join(dir, replacingDir), filepath.Join(dir, old)
	if err := os.MkdirAll(old, 0o700); err != nil {
		return err
	}
	move := func(from, to, name string) error {
		_, err := os.Lstat(filepath.Join(to, name))
		if err == nil {
			return nil // moved before it was interrupted
		}
		err = os.Rename(filepath.Join(from, name), filepath.Join(to, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, name := range parts {
		if err := move(dir, old, name); err != nil {
			return err
		}
	}
	if err := errors.Join(vfs.OS.SyncDir(old), vfs.OS.SyncDir(dir)); err != nil {
		return err
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if err := move(next, dir, parts[i]); err != nil {
			return err
		}
	}
	if err := vfs.OS.SyncDir(dir); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(next), vfs.OS.SyncDir(dir))
}

// checkReplaced refuses a directory whose replacing was interrupted.
func checkReplaced(fs vfs.FS, dir string) error {
	if there, err := vfs.Exists(fs, filepath.Join(dir, replacingDir)); err == nil && there {
		return fmt.Errorf("zlockd recover was interrupted on %s: run it again", dir)
	}
	return nil
}
