// Package restore replaces a cluster's whole state by a backup, through the log.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// A restore sends a backup in pieces through this server's stream, like a client's writes. So a restore
// continues when the leader changes, and each piece takes effect once. All servers keep the pieces beside
// their state, until one more request replaces the state by the backup.
const (
	pieceBytes = 60 << 10 // a log entry has room for a few pieces
	piecesOut  = 16       // limit of the pieces that are proposed and not yet applied

	silence   = time.Minute      // how long a leader waits for a piece before it ends a restore
	pieceWait = 30 * time.Second // how long to wait until a piece is applied
	beginWait = 10 * time.Second // how long to wait until an abandoned restore ends
	again     = 50 * time.Millisecond
)

// Restored describes the result of a restore.
type Restored struct {
	state.Restored
	Zxid int64
}

// Errors of a restore.
var (
	// ErrRestoring says that another restore is under way.
	ErrRestoring = status.Errorf(status.Restoring, "another restore is under way")
	errLowDisk   = errors.New("a server's disk is nearly full; nothing was changed: make room and try again")
	// ErrNotKnown says that the restore may have taken place, or may still take place later.
	ErrNotKnown = errors.New("it is not known whether the restore took place")
)

// Options configure a Restorer.
type Options struct {
	ID      uint32 // id of this server
	Stream  *stream.Stream
	View    func(func(*state.State)) // runs a function on the state under its read lock
	Serving func() (serves bool, why string)
	Refuses func() bool     // reports whether the leader refuses requests that need more room
	DiskLow func() bool     // reports whether this server's disk has little free space
	Ended   <-chan struct{} // closed when this server stops
	Now     func() time.Time
	Rand    io.Reader
}

// Restorer runs the restores that clients of one server ask for, one at a time.
type Restorer struct {
	o    Options
	busy sync.Mutex // locked while a restore is under way at this server
}

// New returns a Restorer.
func New(o Options) *Restorer { return &Restorer{o: o} }

// Restore replaces the whole cluster's state by a backup, which the caller has checked; `size` is its length.
// All clients are disconnected. Afterwards they find the state of the backup, with a zxid above that of the
// backup and of the replaced state. If `keep` is false, all sessions end. After an error other than
// ErrNotKnown nothing has changed.
func (m *Restorer) Restore(ctx context.Context, backup io.Reader, size int64, keep bool) (Restored, error) {
	if !m.busy.TryLock() {
		return Restored{}, ErrRestoring
	}
	defer m.busy.Unlock()
	r := m.begun(state.Staging{ID: stream.Nonce(m.o.Rand), Origin: m.o.ID, Birth: m.o.Stream.Birth(),
		Size: size})
	err := r.begin(ctx)
	if err == nil {
		err = r.send(ctx, backup)
	}
	if err == nil {
		m.awaitTime(ctx)
		err = r.propose(ctx, r.g.Restore(keep))
	}
	if err == nil {
		return r.finish(ctx)
	}
	if !errors.Is(err, ErrRestoring) {
		r.giveUp()
	}
	return Restored{}, err
}

// awaitTime waits until the zxid that the clock gives is at least state.Raised above the present zxid. Then
// the restored state begins at the clock's zxid. If it began above the clock's zxid, a later restore of a
// stopped server could begin below the zxid of the cluster. The wait is needed only in a cluster that was
// just formed or restored. awaitTime does not wait if the present zxid is far ahead of the clock.
func (m *Restorer) awaitTime(ctx context.Context) {
	var zxid int64
	m.o.View(func(s *state.State) { zxid = s.Zxid() })
	ahead := state.TimeOf(zxid+state.Raised) - m.o.Now().UnixMilli()
	if d := time.Duration(ahead) * time.Millisecond; d > 0 && d < 3*time.Second {
		signal.Pause(ctx, d)
	}
}

// restore is a restore under way at this server.
type restore struct {
	o    *Options
	g    state.Staging
	out  int // how many requests are proposed and have no outcome yet
	done outcomes
}

func (m *Restorer) begun(g state.Staging) *restore {
	return &restore{o: &m.o, g: g, done: make(outcomes, piecesOut+2)}
}

// outcomes is a channel with room for the outcomes of all requests that can be under way.
type outcomes chan state.Outcome

// Done implements state.Waiter.
func (c outcomes) Done(o *state.Outcome, _ *state.State) {
	kept := *o
	kept.Reply = slices.Clone(o.Reply)
	c <- kept
}

// begin() asks all servers to expect the backup.
func (r *restore) begin(ctx context.Context) error {
	if r.o.Refuses() || r.o.DiskLow() {
		return errLowDisk
	}
	if err := r.propose(ctx, r.g.Open()); err != nil {
		return err
	}
	return r.next(ctx)
}

// send() proposes the pieces of the backup, a few at a time, and waits until all are applied.
func (r *restore) send(ctx context.Context, backup io.Reader) error {
	piece := make([]byte, pieceBytes)
	for at := int64(0); at < r.g.Size; {
		b := piece[:min(pieceBytes, r.g.Size-at)]
		if _, err := io.ReadFull(backup, b); err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if r.out >= piecesOut {
			if err := r.next(ctx); err != nil {
				return err
			}
		}
		if r.o.Refuses() {
			return errLowDisk
		}
		if err := r.propose(ctx, r.g.Piece(at, b)); err != nil {
			return err
		}
		at += int64(len(b))
	}
	for r.out > 0 {
		if err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// propose() puts a request into this server's stream. While there is no leader the stream is closed, and
// propose() tries again until pieceWait is over.
func (r *restore) propose(ctx context.Context, req state.Request) error {
	ctx, cancel := context.WithTimeout(ctx, pieceWait)
	defer cancel()
	for {
		err := r.o.Stream.Put(&req, r.done)
		if err == nil {
			r.out++
		}
		if !errors.Is(err, stream.ErrClosed) {
			return err
		}
		if !signal.Pause(ctx, again) {
			_, why := r.o.Serving()
			return fmt.Errorf("the restore was given up, and nothing was changed: %s", why)
		}
	}
}

// next() waits for one outcome.
func (r *restore) next(ctx context.Context) error {
	o, err := r.wait(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the restore was given up, and nothing was changed: %w", err)
	case o.Unknown || o.Refused:
		return errors.New("the restore was given up, and nothing was changed: this server fell behind the " +
			"others; try again")
	case o.Code == state.Occupied:
		return fmt.Errorf("%w, %s", ErrRestoring, o.Reply)
	case o.Code != jute.OK:
		return fmt.Errorf("the restore was refused, and nothing was changed: %s", o.Reply)
	}
	r.out--
	return nil
}

func (r *restore) wait(ctx context.Context) (state.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, pieceWait)
	defer cancel()
	select {
	case o := <-r.done:
		return o, nil
	case <-ctx.Done():
		if ok, why := r.o.Serving(); !ok {
			return state.Outcome{}, errors.New(why)
		}
		return state.Outcome{}, ctx.Err()
	case <-r.o.Ended:
		return state.Outcome{}, stream.ErrClosed
	}
}

// giveUp makes all servers drop the pieces of the backup. If it cannot propose that now, the leader ends the
// restore later; see Watch.
func (r *restore) giveUp() {
	req, given := r.g.GiveUp(), make(outcomes, 1)
	if r.o.Stream.Put(&req, given) != nil {
		return
	}
	// Wait, so that a second restore that follows at once does not find this one under way.
	select {
	case <-given:
	case <-time.After(beginWait):
	case <-r.o.Ended:
	}
}

// finish() waits until the state is replaced.
func (r *restore) finish(ctx context.Context) (Restored, error) {
	o, err := r.wait(ctx)
	switch {
	case err != nil || o.Unknown || o.Refused:
		var made Restored
		err := ErrNotKnown
		r.o.View(func(s *state.State) {
			if s.Restored() == r.g.ID {
				made.Zxid, err = s.Zxid(), nil
			}
		})
		return made, err
	case o.Code != jute.OK:
		return Restored{}, fmt.Errorf("the restore was refused, and nothing was changed: %s", o.Reply)
	}
	made, err := state.ParseRestored(o.Reply)
	return Restored{made, o.Zxid}, err
}

// Watch lets a leader detect a restore that gets no more pieces.
type Watch struct {
	id, next int64
	since    time.Time
}

// Look returns the restore under way, and whether it is abandoned: it got no piece for the time `silence`,
// most likely because the server that ran it has stopped. No server can take a snapshot before the leader
// ends that restore.
func (w *Watch) Look(view func(func(*state.State))) (g state.Staging, abandoned bool) {
	var next int64
	open := false
	view(func(s *state.State) { g, next, open = s.Staged() })
	if now := time.Now(); !open || g.ID != w.id || next != w.next {
		w.id, w.next, w.since = g.ID, next, now
		return g, false
	} else if now.Sub(w.since) < silence {
		return g, false
	}
	w.since = time.Now()
	return g, true
}
