package form

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
)

// Promises records the last log position that each other server's data directory has shown. With this
// record, this server detects a directory that was replaced by an old copy. The record is on disk. If a
// crash loses the newest part of the record, this server may fail to detect an old copy.
type Promises struct {
	disk  *disk.Disk
	log   *slog.Logger
	dirty signal.Signal // sent when there is a change to save

	mu   sync.Mutex
	seen map[string]peer.Shown // by incarnation; contains only servers that were members
}

// LoadPromises reads the Promises from the disk.
func LoadPromises(d *disk.Disk, log *slog.Logger) (*Promises, error) {
	p := &Promises{disk: d, log: log, dirty: signal.New(), seen: map[string]peer.Shown{}}
	b, err := d.LoadSeen()
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &p.seen)
	}
	if err != nil {
		return nil, fmt.Errorf(
			"the record of other servers' progress cannot be read (its file may be removed): %w", err)
	}
	return p, nil
}

// Note records the log position that a member has shown.
func (p *Promises) Note(incarnation string, now peer.Shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.seen[incarnation]
	is := was
	is.Raise(now)
	p.seen[incarnation] = is
	// If only the index has changed, do not save at once, because the index changes all the time.
	if is.Start != was.Start || is.Term != was.Term {
		p.dirty.Send()
	}
}

// Of returns the log position that a server has shown so far.
func (p *Promises) Of(incarnation string) peer.Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[incarnation]
}

// Save makes Keep write the promises soon.
func (p *Promises) Save() { p.dirty.Send() }

// Keep writes the promises to disk until ctx ends.
func (p *Promises) Keep(ctx context.Context) {
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
			p.log.Warn("the record of other servers' progress was not saved", "err", err)
		}
	}
}

// OldCopy is the error of a server that runs from an old copy of its data
// directory.
func OldCopy(id, witness uint32, why string) error {
	return fmt.Errorf("the data directory of server %d is an old copy: server %d knows "+
		"that %s; remove the directory, start the server, and run: zlock member replace %d",
		id, witness, why, id)
}

// checkCopy refuses to start from an old copy of the data directory. Such a copy has a shorter log than this
// server has shown to others. If another server does not answer now, it detects the copy later, when it calls
// this server; see confirm().
func (f *Forming) checkCopy(ctx context.Context) error {
	id := f.o.Disk.Identity()
	now := peer.Shown{Start: id.Start, Life: id.Life}
	var end uint64
	var err error
	if now.Term, end, err = f.o.Disk.Promised(); err != nil {
		return err
	}
	for _, a := range f.askAll(ctx, 500*time.Millisecond, peer.Question{}) {
		if a.Err != nil {
			continue
		}
		if why := now.Behind(a.Status.Known, end); why != "" {
			return OldCopy(f.o.List.ID, a.ID, why)
		}
		if a.Status.Incarnation == id.Incarnations[a.ID] {
			f.o.Promises.Note(a.Status.Incarnation, a.Status.Now)
		}
	}
	return nil
}
