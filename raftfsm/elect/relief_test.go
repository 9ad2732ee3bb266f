package elect

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A leader's disk counts as hanging if a write lasts longer than a second and a half, and also longer than
// recent writes.
func TestReliefKnowsSlowDisksFromHangingOnes(t *testing.T) {
	r := new(Relief)
	call := uint64(0)
	write := func(d time.Duration) (gaveUp time.Duration) {
		call++
		r.look(call)
		for at := reliefLook; at <= d; at += reliefLook {
			if r.look(call) && gaveUp == 0 {
				gaveUp = at
			}
		}
		r.look(0)
		return gaveUp
	}
	for range 40 {
		must.Equal(t, write(time.Second), 0, "a write of a second was taken for a hanging one after")
		for range 90 {
			r.look(0)
		}
	}
	expect.Equal(t, write(4*time.Second), reliefLeast+reliefLook, "a write of 4 s was noticed after")
	expect.Equal(t, write(4*time.Second), 0, "the second write of 4 s was noticed after")
	at := write(8 * time.Second)
	expect.That(t, at >= 4*time.Second && at <= reliefMost+time.Second,
		"a write of 8 s was noticed after %v, want 4 s to %v", at, reliefMost+time.Second)
	for range 2 * reliefSpan {
		r.look(0)
	}
	at = write(4 * time.Second)
	expect.That(t, at >= reliefLeast && at <= 2*time.Second,
		"a minute later a write of 4 s was noticed after %v, want %v to 2 s", at, reliefLeast)
}

// relieved() makes the server lead four other voters whose logs differ in length. Server 5 has the longest
// log, but is not up.
func (w *world) relieved() (r *Relief, writing *atomic.Uint64) {
	w.elected()
	for id, last := range map[uint32]uint64{2: 10, 3: 12, 4: 12, 5: 13} {
		w.others[id].set(func() { w.others[id].status.LastIndex = last })
	}
	w.others[5].set(func() { w.others[5].status.Up = false })
	writing = new(atomic.Uint64)
	return &Relief{Raft: w.e.Raft, Port: w.e.Port, Writing: writing.Load, Log: quiet}, writing
}

// told() returns, by id, how often each other server was told to stand for election.
func (w *world) told() (list []int) {
	time.Sleep(10 * time.Millisecond)
	for id := uint32(2); id <= 5; id++ {
		w.others[id].set(func() { list = append(list, w.others[id].told) })
	}
	return list
}

// A leader whose log hangs asks voters to stand for election. It asks one after another, those with the
// longest log first, and only voters that are up. It stops when another server leads. When its own log goes
// on, it can lead again.
func TestReliefAsksTheLongestLog(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3, 4, 5}, []uint32{6}, func(w *world) {
		r, writing := w.relieved()
		go r.Watch(w.ctx)
		time.Sleep(time.Minute)
		writing.Store(1)
		time.Sleep(reliefLeast)
		expect.List(t, w.told(), []int{0, 0, 0, 0}, "told to stand, too early")
		expect.That(t, w.e.Raft.Leads(), "it gives up leadership too early")
		time.Sleep(2*reliefIdle + reliefAsk)
		expect.List(t, w.told(), []int{0, 1, 0, 0}, "told to stand, at first")
		expect.That(t, !w.e.Raft.Leads(), "it asked a voter to stand, and still leads")
		time.Sleep((reliefRest + 1) * reliefLook)
		expect.List(t, w.told(), []int{0, 1, 1, 0}, "told to stand, then")
		w.others[4].set(func() { w.others[4].status.Leader = 4 })
		time.Sleep(10 * (reliefRest + 1) * reliefLook)
		expect.List(t, w.told(), []int{0, 1, 1, 0}, "told to stand, while another server leads")
		w.others[4].set(func() { w.others[4].status.Leader = 1 })
		writing.Store(2)
		time.Sleep(reliefLook * 2)
		expect.That(t, w.e.Raft.Leads(), "the log goes on, and it does not lead")
		w.leads(3, w.e.Raft.CurrentTerm()+1)
		time.Sleep(time.Minute)
		expect.List(t, w.told(), []int{0, 1, 1, 0}, "told to stand, while this server follows")
	})
}

// A leader whose log hangs gives up its leadership only when it asks the first voter to stand for election.
func TestReliefAsksWhenItLeadsNoMore(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3, 4, 5}, nil, func(w *world) {
		r, writing := w.relieved()
		go r.Watch(w.ctx)
		time.Sleep(time.Minute)
		writing.Store(1)
		asked := false
		var leads, asks time.Duration // the times at which the leader stops leading, and at which it asks
		for began := time.Now(); !asked && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			if w.e.Raft.Leads() {
				leads = time.Since(began)
			}
			w.others[3].set(func() { asked = w.others[3].told > 0 })
			asks = time.Since(began)
		}
		must.That(t, asked, "it asks no voter to stand within a minute")
		expect.That(t, leads > reliefLeast, "it leads for %v, want longer than %v", leads, reliefLeast)
		expect.That(t, asks >= leads, "it asks after %v, and leads for %v: it must ask later", asks, leads)
		expect.That(t, asks-leads < reliefLook/2,
			"it asks %v after it has stopped leading, want less than %v", asks-leads, reliefLook/2)
	})
}

// The leader asks the next voter to stand if raft has reported a hand-over in progress for longer than
// `limit`. If raft reports anything else in between, the time starts again.
func TestReliefBegan(t *testing.T) {
	const limit = 2 * time.Second
	inWorld(t, "", 1, []uint32{1, 2, 3, 4, 5}, nil, func(w *world) {
		r, _ := w.relieved()
		began := func(err error, want ...int) {
			t.Helper()
			r.Began(w.ctx, err, limit)
			expect.List(t, w.told(), want, "told to stand")
		}
		barred := raft.ErrLeadershipTransferInProgress
		began(barred, 0, 0, 0, 0)
		time.Sleep(limit - time.Second)
		began(barred, 0, 0, 0, 0)
		time.Sleep(2 * time.Second)
		began(barred, 0, 1, 0, 0)
		time.Sleep(limit / 2)
		began(barred, 0, 1, 0, 0) // after each request to stand, the limit starts again
		time.Sleep(limit)
		began(barred, 0, 1, 1, 0)
		began(nil, 0, 1, 1, 0)
		time.Sleep(2 * limit)
		began(barred, 0, 1, 1, 0)
		began(errors.New("another"), 0, 1, 1, 0)
		began(barred, 0, 1, 1, 0)
		time.Sleep(2 * limit)
		began(barred, 0, 2, 1, 0) // the first voter is asked again
	})
}
