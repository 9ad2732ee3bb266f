package form

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If another server shows more starts or a later term than before, the new values are saved, and are loaded
// at the next start.
func TestR6PromisesAreSaved(t *testing.T) {
	for _, c := range []struct {
		was, now, is peer.Shown
		saved        bool
	}{
		{peer.Shown{}, peer.Shown{Start: 1, Life: "a", Term: 2, Index: 3}, peer.Shown{Start: 1,
			Life: "a", Term: 2,
			Index: 3}, true},
		{peer.Shown{Start: 1, Life: "a", Term: 2}, peer.Shown{Start: 1, Life: "a", Term: 3},
			peer.Shown{Start: 1,
				Life: "a", Term: 3}, true},
		{peer.Shown{Start: 1, Life: "a", Term: 2}, peer.Shown{Start: 2, Life: "b"}, peer.Shown{Start: 2,
			Life: "b",
			Term: 2}, true},
		{peer.Shown{Start: 2, Life: "b", Term: 2, Index: 9}, peer.Shown{Start: 1, Life: "a", Term: 1, Index: 8},
			peer.Shown{Start: 2, Life: "b", Term: 2, Index: 9}, false},
		{peer.Shown{Start: 2, Life: "b", Term: 2, Index: 9}, peer.Shown{Start: 2, Life: "b", Term: 2,
			Index: 10},
			peer.Shown{Start: 2, Life: "b", Term: 2, Index: 10}, false},
	} {
		p := &Promises{dirty: signal.New(), seen: map[string]peer.Shown{"x": c.was}}
		p.Note("x", c.now)
		expect.Equal(t, p.Of("x"), c.is)
		expect.Equal(t, len(p.dirty) == 1, c.saved, "%+v behind %+v is to be saved", c.now, c.was)
	}
	d := must.Get(disk.Open(disk.Options{Server: 1, Dir: t.TempDir(), LogStore: "wal", SnapshotRetain: 2,
		Rand: rand.Reader, Logger: quiet, Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { expect.OK(t, d.Close()) })
	p := must.Get(LoadPromises(d, quiet))(t)
	expect.Equal(t, len(p.seen), 0, "what is known at first")
	done := make(chan struct{})
	go func() { p.Keep(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	p.Note("x", peer.Shown{Start: 7, Life: "a", Term: 2, Index: 3})
	must.Await(t, "it is saved", time.Minute, func() bool {
		b, err := d.LoadSeen()
		seen := map[string]peer.Shown{}
		return err == nil && json.Unmarshal(b, &seen) == nil && seen["x"].Start == 7
	})
	expect.Equal(t, must.Get(LoadPromises(d, quiet))(t).Of("x"), peer.Shown{Start: 7, Life: "a", Term: 2,
		Index: 3})
	must.OK(t, d.SaveSeen([]byte("{")))
	_, err := LoadPromises(d, quiet)
	must.Fails(t, err)
	var bad *json.SyntaxError
	expect.That(t, errors.As(err, &bad), "%v", err)
}
