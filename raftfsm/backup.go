package raftfsm

import (
	"context"
	"errors"
	"io"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Backup is the state at one moment, to be written once while writes go on.
type Backup struct {
	Zxid int64
	ACLs [][]jute.ACL // every one that a node in it can have

	snap *fsmSnapshot
}

// Backup takes hold of the state as it is now. It waits, as long as ctx allows,
// for a snapshot or another backup that is under way. The caller closes it.
func (n *Node) Backup(ctx context.Context) (*Backup, error) {
	f := n.fsm
	select {
	case f.walking <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("a snapshot or another backup is being written; try again")
	}
	if f.dead.Load() {
		<-f.walking
		return nil, errors.New("this server has stopped")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.StartSnapshot(state.Position{Index: f.index.Load(), Term: f.term.Load()})
	return &Backup{Zxid: s.Zxid(), ACLs: s.ACLs(), snap: &fsmSnapshot{f: f, state: s}}, nil
}

// Write writes the backup. No writer is kept waiting for more than some nodes.
func (b *Backup) Write(w io.Writer) error { return b.snap.state.Write(w, b.snap.read) }

// Close releases the state.
func (b *Backup) Close() { b.snap.Release() }
