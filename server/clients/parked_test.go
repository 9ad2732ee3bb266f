package clients

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/watches"
)

// If reads follow writes of their connection, the requests after the reads need not wait. Each read sees
// exactly the writes before it, and its watch reports the writes after it.
func TestReadsParkBehindWrites(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "0", 0)
	r.valve.close()
	set := func(v string) wire.Body { return wire.SetData("/a", []byte(v), -1) }
	var p batch
	p.add(jute.OpSetData, set("1")).add(jute.OpGetData, wire.PathWatch("/a", true))
	p.add(jute.OpSetData, set("2")).add(jute.OpGetData, wire.PathWatch("/a", false))
	p.add(jute.OpExists, wire.PathWatch("/b", true)).add(jute.OpGetChildren, wire.PathWatch("/", true))
	p.add(jute.OpCreate, wire.Create("/b", nil, jute.WorldAnyone, 0))
	p.add(jute.OpGetChildren2, wire.PathWatch("/", false)).add(jute.OpGetACL, wire.Path("/b"))
	must.OK(t, c.WriteRaw(p.b))
	eventually(t, "all writes on their way", func() bool { return r.valve.waiting() == 3 })
	r.valve.open()
	var seen []string
	for range 12 {
		f, err := c.Next()
		must.OK(t, err)
		if f.Event != nil {
			seen = append(seen, fmt.Sprint(f.Event.Type, " ", f.Event.Path))
			continue
		}
		text := fmt.Sprint(f.Xid)
		switch d := jute.NewDecoder(f.Body); f.Xid {
		case 2, 4:
			text += " " + string(d.Buffer())
		case 5:
			text += " " + f.Code.Error()
		case 6, 8:
			names, _ := d.Strings()
			slices.Sort(names)
			text += " " + strings.Join(names, " ")
		}
		seen = append(seen, text)
	}
	want := []string{"1", "2 1", "NodeDataChanged /a", "3", "4 2", "5 " + jute.NoNode.Error(), "6 a zookeeper",
		"NodeCreated /b", "NodeChildrenChanged /", "7", "8 a b zookeeper", "9"}
	if !slices.Equal(seen, want) {
		t.Errorf("got  %q\nwant %q", seen, want)
	}
	expect.Equal(t, r.status().Outstanding, 0, "requests outstanding")
}

// A read whose answer may be long waits for the writes before it, and so do all requests after the read.
func TestLongReadsDoNotPark(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/long", strings.Repeat("x", parkedAnswer+1), 0)
	create(t, c, "/short", "", 0)
	for _, x := range []struct {
		op   jute.OpCode
		body wire.Body
		path string
	}{
		{jute.OpSync, wire.Path("/"), "/long"},
		{jute.OpSetData, wire.SetData("/short", make([]byte, parkedAnswer), -1), "/short"}, // the data is long now
	} {
		var p batch
		p.add(x.op, x.body).add(jute.OpGetData, wire.PathWatch(x.path, false)).add(jute.OpSync, wire.Path("/"))
		r.valve.close()
		must.OK(t, c.WriteRaw(p.b))
		eventually(t, "proposed", func() bool { return r.valve.waiting() == 1 })
		time.Sleep(10 * time.Millisecond)
		n := r.valve.waiting()
		expect.Equal(t, n, 1, "%s: %d requests on their way past the read", x.path, n)
		r.valve.open()
		wantKinds(t, c, 1, 2, 3)
	}
}

// A getACL whose answer is long does not park.
func TestLongACLsDoNotPark(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	acl := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "digest", ID: strings.Repeat("u", parkedAnswer) + ":x"}}}
	call(t, c, jute.OK, jute.OpCreate, wire.Create("/long", nil, append(acl, jute.WorldAnyone...), 0))
	var p batch
	p.add(jute.OpSync, wire.Path("/")).add(jute.OpGetACL, wire.Path("/long")).add(jute.OpSync, wire.Path("/"))
	r.valve.close()
	must.OK(t, c.WriteRaw(p.b))
	eventually(t, "proposed", func() bool { return r.valve.waiting() == 1 })
	time.Sleep(10 * time.Millisecond)
	expect.Equal(t, r.valve.waiting(), 1, "requests on their way past the read")
	r.valve.open()
	wantKinds(t, c, 1, 2, 3)
}

// Another client may make the answers to parked reads long. Such answers count toward the memory of the
// address that gets them. A connection whose answers do not fit is closed.
func TestParkedReadsThatBecameLongAreBounded(t *testing.T) {
	r := newRig(t, options.Options{MaxWatchBytesPerConn: 1 << 20})
	b := r.client()
	list := []*wire.Conn{r.client(), r.client(), r.client()}
	create(t, b, "/big", "", 0)
	r.valve.close()
	must.OK(t, b.SendXid(1, jute.OpSetData, wire.SetData("/big", make([]byte, 900_000), -1)))
	eventually(t, "the data on their way", func() bool { return r.valve.waiting() == 1 })
	var p batch
	p.add(jute.OpSync, wire.Path("/"))
	for range 10 {
		p.add(jute.OpGetData, wire.PathWatch("/big", false))
	}
	p.add(jute.OpSync, wire.Path("/"))
	for i, c := range list {
		must.OK(t, c.WriteRaw(p.b))
		eventually(t, "past the reads", func() bool { return r.valve.waiting() == 3+2*i })
	}
	r.valve.open()
	answered := 0
	for _, c := range list {
		for n := 0; n < 12; n++ {
			if _, err := c.Next(); err != nil {
				break
			}
			answered++
		}
	}
	expect.That(t, answered < 24, "%d of 36 requests are answered", answered)
	wantKinds(t, b, 1)
}

// The goroutine that applies the log may answer a parked read just when the read's connection ends. The
// connection must not get a watch then.
func TestConnectionThatHasEndedGetsNoWatch(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	s := r.srv.conns.Of(c.Session.ID)
	c.Close()
	eventually(t, "it may watch no more", func() bool {
		return !r.srv.conns.Watches.Add(s.Watcher(), "/a", watches.Data)
	})
	expect.Equal(t, r.status().AllWatches, 0, "watches")
}

// A pipeline of small requests gets the same answers as the same requests one at a time.
func TestPipelinesAnswerAsSingleRequestsDo(t *testing.T) {
	r := newRig(t, options.Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		var ops []jute.OpCode
		var bodies []wire.Body
		for range 60 {
			path := fmt.Sprintf("/PAIR/n%d", rnd.IntN(4))
			op, body := jute.OpGetData, wire.PathWatch(path, rnd.IntN(4) == 0)
			switch rnd.IntN(10) {
			case 0:
				op, body = jute.OpCreate, wire.Create(path, []byte("c"), jute.WorldAnyone, 0)
			case 1:
				op, body = jute.OpDelete, wire.PathVersion(path, -1)
			case 2, 3:
				op, body = jute.OpSetData, wire.SetData(path, fmt.Append(nil, rnd.IntN(1000)), -1)
			case 4:
				op, body = jute.OpExists, wire.PathWatch(path, rnd.IntN(2) == 0)
			case 5:
				op, body = jute.OpGetChildren, wire.PathWatch("/PAIR", rnd.IntN(2) == 0)
			case 6:
				op, body = jute.OpMultiRead, wire.Multi(wire.Op{Type: jute.OpGetData, Body: wire.Path(path).Bool(false)})
			}
			ops, bodies = append(ops, op), append(bodies, body)
		}
		var got [2][]string
		for i := range got {
			c := r.client()
			pair := fmt.Sprintf("%03d%d", round, i)
			create(t, c, "/"+pair, "", 0)
			var p batch
			for k, op := range ops {
				body := wire.Body(strings.ReplaceAll(string(bodies[k]), "PAIR", pair))
				if i == 0 {
					p.add(op, body)
					continue
				}
				must.OK(t, c.SendXid(int32(k+1), op, body))
				got[i] = append(got[i], answers(t, c, k+1, pair)...)
			}
			if i == 0 {
				must.OK(t, c.WriteRaw(p.b))
				got[i] = answers(t, c, len(ops), pair)
			}
			must.OK(t, c.CloseSession())
		}
		if !slices.Equal(got[0], got[1]) {
			t.Fatalf("round %d: pipelined\n%q\none at a time\n%q", round, got[0], got[1])
		}
	}
}

// answers() reads until the reply whose xid is `last`, and describes the answers without zxids and times.
func answers(t *testing.T, c *wire.Conn, last int, pair string) (list []string) {
	t.Helper()
	for {
		f, err := c.Next()
		must.OK(t, err)
		if f.Event != nil {
			list = append(list, strings.Replace(fmt.Sprint(f.Event.Type, " ", f.Event.Path), pair, "", 1))
			continue
		}
		text := fmt.Sprint(f.Xid, " ", f.Code)
		if d := jute.NewDecoder(f.Body); f.Code == jute.OK {
			text += " " + strings.Replace(string(d.Buffer()), pair, "", 1)
		}
		list = append(list, text)
		if f.Xid == int32(last) {
			return list
		}
	}
}
