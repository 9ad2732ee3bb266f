package raftfsm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// promises are what other servers have shown this one of their data directories, and so promised:
// so this server notices when one of those is put back to an old copy. They are kept on disk;
// promises lost in a crash only make this server more trusting.
type promises struct {
	disk  *disk.Disk
	log   *slog.Logger
	dirty signal // that there is something to save

	mu   sync.Mutex
	seen map[string]peer.Shown // by incarnation; only of those that were members
}

func loadPromises(d *disk.Disk, log *slog.Logger) (*promises, error) {
	p := &promises{disk: d, log: log, dirty: newSignal(), seen: map[string]peer.Shown{}}
	b, err := d.LoadSeen()
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &p.seen)
	}
	if err != nil {
		return nil, fmt.Errorf("what is known of other servers cannot be read (the file may be removed): %w", err)
	}
	return p, nil
}

// note remembers what a member has shown.
func (p *promises) note(incarnation string, now peer.Shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.seen[incarnation]
	is := was
	is.Raise(now)
	p.seen[incarnation] = is
	// The index alone changes all the time; it is saved with the rest.
	if is.Start != was.Start || is.Term != was.Term {
		p.dirty.send()
	}
}

// of returns what a server has shown.
func (p *promises) of(incarnation string) peer.Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[incarnation]
}

// keep writes the promises to disk until ctx ends.
func (p *promises) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
		}
		p.mu.Lock()
		seen := maps.Clone(p.seen)
		p.mu.Unlock()
		b, err := json.MarshalIndent(seen, "", "  ")
		if err == nil {
			err = p.disk.SaveSeen(append(b, '\n'))
		}
		if err != nil {
			p.log.Warn("what is known of other servers was not saved", "err", err)
		}
	}
}

// oldCopy is the error of a server that runs from an old copy of its data
// directory.
func oldCopy(id, witness uint32, why string) error {
	return fmt.Errorf("the data directory of server %d is an old copy: server %d knows "+
		"that %s; remove the directory, start the server, and give it its place again: zlock member replace %d", id,
		witness, why, id)
}

// shown returns what this server shows of itself, and where its log ends.
func (n *Node) shown() (now peer.Shown, end uint64) {
	id := n.disk.Identity()
	now = peer.Shown{Start: id.Start, Life: id.Life}
	if n.up.Load() {
		now.Term, now.Index = n.raft.CurrentTerm(), n.fsm.index.Load()
		return now, min(n.raft.LastIndex(), n.disk.Durable())
	}
	now.Term, end, _ = n.disk.Promised()
	return now, end
}

// incarnationOf returns the data directory by which a member is known; empty for a server that is
// not a member, or whose next directory is a new one.
func (n *Node) incarnationOf(id uint32) string {
	incarnation, _ := n.knownAs(id)
	return incarnation
}

// knownAs is incarnationOf with the log entry as of which that holds. A server
// that has just started knows the others as of its snapshot, or as its cluster
// formed.
func (n *Node) knownAs(id uint32) (incarnation string, asOf uint64) {
	own := n.disk.Identity()
	incarnation, asOf = own.Incarnations[id], own.Expected
	if n.up.Load() {
		n.fsm.view(func(s *state.State) {
			if m, ok := s.Member(id); ok {
				incarnation = m.Incarnation
			}
			asOf = max(asOf, n.fsm.index.Load())
		})
	}
	return incarnation, asOf
}
