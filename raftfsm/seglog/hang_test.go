package seglog

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/simdisk"
)

// A read that hangs on the disk holds up no append, no truncation and no other read. It finds out if its
// entry was deleted during that time.
func TestReadThatHangsHoldsUpNothing(t *testing.T) {
	for _, kind := range []string{"open", "read"} {
		rng := rand.New(rand.NewPCG(6, 1))
		disk := simdisk.New(rng)
		l := must.Get(Open("log", Options{FS: disk.Mount(), FirstSize: 4 << 10, FullSize: 4 << 10}))(t)
		m := &model{first: 1, entries: batch(rng, 1, 100, 900)}
		must.OK(t, l.StoreLogs(m.entries[:5]))
		for i := 5; i < 100; i += 5 { // more segments than stay open
			must.OK(t, l.StoreLogs(m.entries[i:i+5]))
		}
		hangs, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		disk.OnOp(func(op simdisk.Op) error {
			first := false
			if op.Kind == kind {
				once.Do(func() { first = true })
			}
			if first {
				close(hangs)
				<-goOn
			}
			return nil
		})
		got := make(chan error, 1)
		var out raft.Log
		go func() { got <- l.GetLog(1, &out) }()
		<-hangs
		more := batch(rng, 101, 20, 900)
		must.OK(t, l.Append(more[:10], false))
		must.OK(t, l.Wait(110))
		must.OK(t, l.StoreLogs(more[10:]))
		must.OK(t, l.DeleteRange(1, 60))
		m.first, m.entries = 61, append(m.entries[60:], more...)
		m.same(t, l)
		close(goOn)
		expect.Equal(t, <-got, raft.ErrLogNotFound, "%s: a deleted entry is %+v", kind, out)
		m.same(t, l)
		must.OK(t, l.Close())
	}
}
