package clients

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// batch appends requests with the xids 1, 2, 3… to one buffer.
type batch struct {
	b   []byte
	xid int32
}

func (p *batch) add(op jute.OpCode, body wire.Body) *batch {
	p.xid++
	p.b = wire.AppendRequest(p.b, p.xid, op, body)
	return p
}

func TestRepliesKeepTheOrderOfPipelinedRequests(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	var p batch
	var want []any
	for i := range 200 {
		path := fmt.Sprintf("/n%d", i)
		p.add(jute.OpCreate, wire.Create(path, []byte(path), jute.WorldAnyone, 0))
		p.add(jute.OpGetData, wire.PathWatch(path, false))
		p.add(jute.OpGetChildren, wire.PathWatch("/", false))
		p.add(jute.OpSync, wire.Path(path))
		p.add(jute.OpSetData, wire.SetData(path, nil, 0))
	}
	for x := range int(p.xid) {
		want = append(want, x+1)
	}
	must.OK(t, c.WriteRaw(p.b))
	wantKinds(t, c, want...)
}

func TestReadSeesOwnWriteSentBeforeIt(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "0", 0)
	for i := range 100 {
		text := fmt.Sprint(i)
		var p batch
		p.add(jute.OpSetData, wire.SetData("/a", []byte(text), -1)).add(jute.OpGetData, wire.PathWatch("/a", false))
		must.OK(t, c.WriteRaw(p.b))
		w := must.Get(c.Reply())(t)
		f := must.Get(c.Reply())(t)
		d := jute.NewDecoder(f.Body)
		got := string(d.Buffer())
		must.Equal(t, got, text, "read %q after writing", got)
		must.That(t, f.Zxid >= w.Zxid, "read at zxid %d after write at %d", f.Zxid, w.Zxid)
	}
}

// For a linearizable read the server proposes a request of its own. The read waits until this request has
// gone through the log. The client's address pays for the request, but the client does not see it.
func TestLinearizableReadWaitsForTheLog(t *testing.T) {
	r := newRig(t, options.Options{LinearizableReads: true})
	c := r.client()
	create(t, c, "/a", "", 0)
	for n := range 3 {
		r.valve.close()
		from := r.srv.conns.Of(c.Session.ID).Account()
		from.Forgive()
		must.OK(t, c.SendXid(int32(1+n), jute.OpGetData, wire.PathWatch("/a", false)))
		eventually(t, "it waits", func() bool { return r.valve.waiting() == 1 })
		owed := from.Owed()
		expect.That(t, owed >= request.WriteSteps, "its address owes %d steps", owed)
		r.valve.open()
		wantKinds(t, c, 1+n)
	}
	call(t, c, jute.OK, jute.OpSetData, wire.SetData("/a", nil, -1))
	alive(t, c)
}

// A read, a ping or an auth after a stuck write waits for the write. Replies to earlier requests do not wait.
func TestWhatIsAnsweredHereWaitsForPendingWrites(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, later := range []struct {
		op   jute.OpCode
		body wire.Body
	}{
		{jute.OpGetData, wire.PathWatch("/", false)},
		{jute.OpPing, nil},
		{jute.OpAuth, wire.Auth("digest", "u:p")},
		{jute.OpWhoAmI, nil},
		{jute.OpSASL, wire.Body{}.Buf(nil)},
		{jute.OpSetWatches, wire.SetWatches(0, nil, nil, nil)},
		{jute.OpAddWatch, wire.PathInt("/", 0)},
		{jute.OpCheck, wire.PathVersion("/", -1)},
		{jute.OpReconfig, nil},
		{jute.OpCode(4711), nil},
		{jute.OpGetData, nil}, // malformed
	} {
		c := r.client()
		r.valve.close()
		var p batch
		p.add(jute.OpGetData, wire.PathWatch("/", false)).add(jute.OpSync, wire.Path("/")).add(later.op, later.body)
		must.OK(t, c.WriteRaw(p.b))
		wantKinds(t, c, 1)
		must.OK(t, c.Silent(5*time.Millisecond))
		r.valve.open()
		want := []any{2, 3}
		if later.op == jute.OpPing {
			want[1] = -2
		}
		wantKinds(t, c, want...)
	}
}

func TestEventComesBeforeTheReplyThatCausedIt(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "", 0)
	var p batch
	p.add(jute.OpGetData, wire.PathWatch("/a", true)).
		add(jute.OpGetChildren, wire.PathWatch("/a", true)).
		add(jute.OpSetData, wire.SetData("/a", nil, -1)).
		add(jute.OpCreate, wire.Create("/a/b", nil, jute.WorldAnyone, 0)).
		add(jute.OpGetData, wire.PathWatch("/a", false))
	must.OK(t, c.WriteRaw(p.b))
	wantKinds(t, c, 1, 2, "NodeDataChanged /a", 3, "NodeChildrenChanged /a", 4, 5)
}

// Another connection changes the node all the time. When a client sees new data, it must have got the event
// before. A watch must fire only after the reply to the read that set it.
func TestEventComesBeforeAnyReplyThatShowsTheChange(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	create(t, a, "/a", "0", 0)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := a.SetData("/a", []byte(fmt.Sprint(n)), -1); err != nil {
				done <- err
				return
			}
		}
	}()
	for xid := int32(0); xid < 600; xid++ {
		must.OK(t, b.SendXid(xid, jute.OpGetData, wire.PathWatch("/a", true)))
		f := must.Get(b.Next())(t)
		must.That(t, f.Event == nil, "an event without a watch")
		armed := mzxidOf(t, f)
		for fired := false; !fired; {
			xid++
			must.OK(t, b.SendXid(xid, jute.OpGetData, wire.PathWatch("/a", false)))
			for f = (wire.Frame{}); f.Xid != xid; {
				f = must.Get(b.Next())(t)
				if f.Event == nil {
					if at := mzxidOf(t, f); !fired && at != armed {
						t.Fatalf("the change at %d shows before the event of the watch set at %d", at, armed)
					}
				} else if fired = true; f.Zxid <= armed {
					t.Fatalf("event of zxid %d for a watch set at %d", f.Zxid, armed)
				}
			}
		}
	}
	close(stop)
	must.OK(t, <-done)
}

// mzxidOf returns the zxid of the last change of the data in a reply to getData.
func mzxidOf(t *testing.T, f wire.Frame) int64 {
	t.Helper()
	d := jute.NewDecoder(f.Body)
	d.Buffer()
	st := d.Stat()
	must.OK(t, d.Err(), "reply %+v", f)
	must.That(t, st.Mzxid <= f.Zxid,
		"reply %+v: header zxid older than the data: want st.Mzxid <= f.Zxid", f)
	return st.Mzxid
}

func TestRequestsBehindCloseSessionAreDropped(t *testing.T) {
	r := newRig(t, options.Options{})
	for range 20 {
		c := r.client()
		var p batch
		p.add(jute.OpCreate, wire.Create("/e", nil, jute.WorldAnyone, jute.FlagEphemeral)).
			add(jute.OpGetData, wire.PathWatch("/e", true)).
			add(jute.OpCloseSession, nil)
		for range 500 {
			p.add(jute.OpGetData, wire.PathWatch("/", false))
		}
		must.OK(t, c.WriteRaw(p.b))
		wantKinds(t, c, 1, 2, "NodeDeleted /e", 3)
		must.OK(t, c.Closed())
	}
	expect.Equal(t, len(r.sessions()), 0, "sessions left")
}

// A read waits for the writes before it, and a close waits for all requests before it. Such waits do not
// count as throttling.
func TestWaitingForOnesOwnIsNotThrottling(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	var p batch
	p.add(jute.OpCreate, wire.Create("/a", nil, jute.WorldAnyone, 0)).
		add(jute.OpGetData, wire.PathWatch("/a", false)).
		add(jute.OpSetData, wire.SetData("/a", nil, -1)).
		add(jute.OpCloseSession, nil)
	must.OK(t, c.WriteRaw(p.b))
	wantKinds(t, c, 1, 2, 3, 4)
	n := r.srv.Metrics().Throttled.Load()
	expect.Equal(t, n, 0, "throttled %d times", n)
}

func TestXidsAreEchoedWhateverTheyAre(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	for _, xid := range []int32{0, 1, -1, -2, -4, -8, -100, 1<<31 - 1, -1 << 31} {
		for _, op := range []jute.OpCode{jute.OpGetData, jute.OpSync, jute.OpAddWatch, jute.OpSetWatches} {
			body := wire.PathWatch("/", false)
			switch op {
			case jute.OpAddWatch:
				body = wire.PathInt("/", 0)
			case jute.OpSetWatches:
				body = wire.SetWatches(0, nil, nil, nil)
			}
			must.OK(t, c.SendXid(xid, op, body))
			b := must.Get(c.ReadFrame())(t)
			if d := jute.NewDecoder(b); d.Int() != xid {
				t.Errorf("%v with xid %d: reply %x", op, xid, b)
			}
		}
	}
	must.OK(t, c.SendXid(77, jute.OpPing, nil))
	wantKinds(t, c, -2) // xid -2 as in every reply to a ping, although the request had xid 77
	must.OK(t, c.SendXid(78, jute.OpAuth, wire.Auth("ip", "")))
	wantKinds(t, c, 78)
}

func TestCatchUpEventsComeBeforeTheReply(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	create(t, a, "/same", "", 0)
	create(t, a, "/gone", "", 0)
	seen := create(t, a, "/changed", "", 0).Zxid
	call(t, a, jute.OK, jute.OpDelete, wire.PathVersion("/gone", -1))
	call(t, a, jute.OK, jute.OpSetData, wire.SetData("/changed", nil, -1))
	create(t, a, "/new", "", 0)
	create(t, a, "/same/child", "", 0)
	b := r.client()
	all := []string{"/same", "/gone", "/changed"}
	must.OK(t, b.SendXid(-8, jute.OpSetWatches2, wire.SetWatches2(seen, all, []string{"/new", "/never"}, []string{
		"/same", "/changed"}, []string{"/p"}, []string{"/r"})))
	wantKinds(t, b, "NodeDeleted /gone", "NodeDataChanged /changed", "NodeCreated /new",
		"NodeChildrenChanged /same", -8)
	call(t, a, jute.OK, jute.OpSetData, wire.SetData("/same", nil, -1))
	create(t, a, "/never", "", 0)
	create(t, a, "/changed/x", "", 0)
	create(t, a, "/p", "", 0)
	create(t, a, "/r", "", 0)
	create(t, a, "/r/s", "", 0)
	wantKinds(t, b, "NodeDataChanged /same", "NodeCreated /never", "NodeChildrenChanged /changed",
		"NodeCreated /p", "NodeCreated /r", "NodeCreated /r/s")
}

func TestCatchUpOfManyPathsArmsThemAll(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	var data, exist []string
	for i := range 1200 {
		exist = append(exist, fmt.Sprintf("/x%d", i))
		data = append(data, "/")
	}
	data = append(data, slices.Repeat([]string{"/missing"}, 1200)...)
	must.OK(t, b.SendXid(9, jute.OpSetWatches, wire.SetWatches(1<<60, data, exist, nil)))
	for range 1200 {
		wantKinds(t, b, "NodeDeleted /missing")
	}
	wantKinds(t, b, 9)
	expect.Equal(t, r.status().AllWatches, 1201, "watches armed")
	for _, i := range []int{0, 499, 500, 1199} {
		create(t, a, exist[i], "", 0)
		wantKinds(t, b, "NodeCreated "+exist[i])
	}
}
