package seglog

import (
	"testing"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// A store that forgets one of its syncs must not get past the model.
func TestModelFindsWhatIsNotSynced(t *testing.T) {
	for what, lie := range map[string]func(*liar){
		"no append is synced":        func(l *liar) { l.noDatasync = true },
		"no file is synced":          func(l *liar) { l.noSync = true },
		"no directory is synced":     func(l *liar) { l.noSyncDir = true },
		"what is cached is believed": func(l *liar) { l.noForget = true },
		"Open syncs neither of these": func(l *liar) {
			l.openOnly, l.noSync, l.noDatasync, l.noSyncDir = true, true,
				true, true
		},
		"Open syncs no file":          func(l *liar) { l.openOnly, l.noSync = true, true },
		"Open does not sync the name": func(l *liar) { l.openOnly, l.noSyncDir = true, true },
	} {
		t.Run(what, func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				err := runModel(seed, func(fs vfs.FS) vfs.FS {
					l := &liar{FS: fs}
					lie(l)
					return l
				})
				if err != nil {
					t.Logf("found by seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// liar says that it has synced, and has not.
type liar struct {
	vfs.FS
	noSync, noDatasync, noSyncDir, noForget, openOnly, opened bool
}

func (l *liar) lies(about bool) bool { return about && !(l.openOnly && l.opened) }

func (l *liar) SyncDir(dir string) error {
	if l.lies(l.noSyncDir) {
		return nil
	}
	return l.FS.SyncDir(dir)
}

func (l *liar) Create(name string) (vfs.File, error) { return l.wrap(l.FS.Create(name)) }
func (l *liar) Open(name string) (vfs.File, error)   { return l.wrap(l.FS.Open(name)) }

func (l *liar) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return liarFile{f, l}, nil
}

type liarFile struct {
	vfs.File
	l *liar
}

func (f liarFile) Sync() error {
	if f.l.lies(f.l.noSync) {
		return nil
	}
	return f.File.Sync()
}

func (f liarFile) Datasync() error {
	if f.l.lies(f.l.noDatasync) {
		return nil
	}
	return f.File.Datasync()
}

func (f liarFile) Forget() error {
	if f.l.lies(f.l.noForget) {
		return nil
	}
	return f.File.Forget()
}
