package view

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// In the picture of waits, a straight line leads to a column on the right. A bow leads back into its own
// column.
func TestLinesOfAPicture(t *testing.T) {
	party := func(session int64, cycle int) partyRow {
		return partyRow{Label: "p", Addr: "a", Party: recipe.Party{Session: recipe.Session(session), Cycle: cycle}}
	}
	g := &graphAnswer{
		Parties: []partyRow{party(1, 0), party(2, 0), party(3, 0), party(4, 1), party(5, 1)},
		Edges: []recipe.Edge{
			{From: 0, To: 1, Path: "/a", FromNode: "x", ToNode: "y"}, {From: 1, To: 2, Path: "/b", Any: true},
			{From: 0, To: 2, Path: "/c", Watch: true}, {From: 0, To: 2, Path: "/d", Any: true},
			{From: 0, To: 2, Path: "/e"},
			{From: 0, To: 3, Path: "/v", Watch: true}, {From: 0, To: 3, Path: "/w", Watch: true},
			{From: 3, To: 4, Path: "/x", Cycle: true}, {From: 4, To: 3, Path: "/y", Cycle: true},
		},
		EdgeCount: 9, Suspected: []recipe.Cycle{{}},
	}
	g.Parties[1].Label, g.Parties[2].Label, g.Parties[2].Reason = "0x2", strings.Repeat("l", 25), "why"
	p := draw(*g)
	var got strings.Builder
	for _, b := range p.Boxes {
		fmt.Fprintf(&got, "%d,%d %d,%d,%d %s|%s|%s|%s\n", b.X, b.Y, b.TX, b.TY, b.SY, b.Label, b.Sub, b.Title, b.Class)
	}
	for _, l := range p.Lines {
		fmt.Fprintf(&got, "%s %s %d,%d %s|%s|%s|%s|%s\n", l.D, l.Head, l.X, l.Y, l.Anchor, l.Class, l.Text, l.Title, l.Path)
	}
	fmt.Fprintf(&got, "%dx%d %s", p.W, p.H, p.Summary)
	const want = `850,10 860,29,47 p|0x4|0x4 a |cycle
850,86 860,105,123 p|0x5|0x5 a |cycle
10,10 20,29,47 p|0x1|0x1 a |
430,10 440,29,47 0x2|a|0x2 a |
850,162 860,181,199 lllllllllllllllllllllll…|why|0x3 a why|
M200 33 C260 33 370 33 430 33 M422 29 L430 33 L422 37Z 315,29 middle||/a|/a: x waits for y|/a
M620 33 C680 33 790 185 850 185 M842 181 L850 185 L842 189Z 735,105 middle|any|/b|/b:  waits for |/b
M200 33 C260 33 790 185 850 185 M842 181 L850 185 L842 189Z 525,105 middle||3 locks|/c:  waits for ; /d; /e|/c
M200 33 C260 33 790 33 850 33 M842 29 L850 33 L842 37Z 525,29 middle|any|2 locks|/v:  waits for ; /w|/v
M1040 39 C1080 39 1080 115 1040 115 M1048 111 L1040 115 L1048 119Z 1118,65 start|cycle|/x|/x:  waits for |/x
M1040 103 C1110 103 1110 27 1040 27 M1048 23 L1040 27 L1048 31Z 1118,85 start|cycle|/y|/y:  waits for |/y
1350x218 5 parties, 9 waits, 1 suspected deadlocks; the table below has the same`
	expect.Equal(t, got.String(), want)
}

// If a graph is too large, the picture has as many parties as fit. A deadlock comes first and is complete.
// The note says how many parties are missing.
func TestPictureOfACrowd(t *testing.T) {
	chain, crowd, ring := &graphAnswer{}, &graphAnswer{}, &graphAnswer{}
	for i := range 30 {
		for _, g := range []*graphAnswer{chain, crowd, ring} {
			g.Parties = append(g.Parties, partyRow{ID: i})
		}
		if i > 0 {
			chain.Edges = append(chain.Edges, recipe.Edge{From: i - 1, To: i})
			crowd.Edges = append(crowd.Edges, recipe.Edge{From: i, To: 0})
		}
		if i >= 15 {
			ring.Parties[i].Cycle = 1
			ring.Edges = append(ring.Edges, recipe.Edge{From: i, To: 15 + (i+1)%15, Cycle: true})
		} else {
			ring.Edges = append(ring.Edges, recipe.Edge{From: i, To: 15})
		}
	}
	for name, c := range map[string]struct {
		g            *graphAnswer
		boxes, lines int
		note         string
	}{
		"a chain": {chain, maxCols, maxCols - 1, "3 of 30 parties. Waiters"},
		"a crowd": {crowd, maxRows + 1, maxRows, "11 of 30 parties. Waiters"},
		"a ring":  {ring, 15 + maxRows, 15 + maxRows, "25 of 30 parties. Waiters"},
	} {
		t.Run(name, func(t *testing.T) {
			p := draw(*c.g)
			expect.Equal(t, len(p.Boxes), c.boxes, "boxes")
			expect.Equal(t, len(p.Lines), c.lines, "lines")
			expect.That(t, strings.HasPrefix(p.Note, c.note), "%s", p.Note)
			expect.That(t, p.W <= 10+(maxCols-1)*colWidth+boxWidth+bowWidth, "it is %d wide", p.W)
		})
	}
	for i, b := range draw(*ring).Boxes[:15] {
		expect.Equal(t, b.Class, "cycle", "box %d", i)
		expect.Equal(t, b.Y, 10+i*rowHeight, "box %d", i)
	}
}

// Only the beginning of long data is shown. It is not cut within a character.
func TestLongDataIsCut(t *testing.T) {
	full := strings.Repeat("x", maxData)
	for _, c := range []struct{ data, text, note string }{
		{full, full, ""},
		{full + "y", full, "too long: 1,048,577 bytes, the first 1,048,576 shown"},
		{full[1:] + "€z", full[1:], "too long: 1,048,579 bytes, the first 1,048,576 shown"},
		{full[3:] + "€z", full[3:] + "€", "too long: 1,048,577 bytes, the first 1,048,576 shown"},
	} {
		var a nodeAnswer
		a.show(c.data)
		if expect.That(t, a.Text != nil, "%d bytes: %q, %.20q", len(c.data), a.DataNote, a.Base64) {
			expect.Equal(t, *a.Text, c.text, "%d bytes: text", len(c.data))
			expect.Equal(t, a.DataNote, c.note, "%d bytes: data note", len(c.data))
			expect.Equal(t, a.Base64, "", "%d bytes: base64", len(c.data))
		}
	}
	var a nodeAnswer
	a.show("\x80" + full)
	expect.That(t, a.Text == nil, "%d letters of base 64", len(a.Base64))
	expect.Equal(t, len(a.Base64), (maxData-4+2)/3*4, "number of base64 %v", a.Base64)
}

// Rates and busy clients are counted since the oldest sample.
func TestTopCountsSinceTheOldestSample(t *testing.T) {
	conn := func(session, requests, bytes int64, addr string) report.Conn {
		return report.Conn{Session: session, Received: requests, BytesIn: bytes - 1, BytesOut: 1, Addr: addr}
	}
	s := &busy{conns: []report.Conn{conn(1, 10, 100, "h1:7"), conn(2, 10, 100, "h1:8"), conn(3, 10, 100, "h2:9"),
		conn(0, 99, 999, "h3:1")}}
	v := viewOf(s)
	v.rates.samples = []sample{v.sample()}
	s.conns = append(s.conns, conn(4, 1, 900, "h2:7"))
	s.conns[0].Received, s.conns[0].BytesOut = 15, 51
	s.conns[1].Received = 4 // an operator has reset this counter
	for by, want := range map[string]string{
		"":        "[{h1 9 150 3} {gone 7 70 0} {h2 1 900 7}]",
		"bytes":   "[{h2 1 900 7} {h1 9 150 3} {gone 7 70 0}]",
		"watches": "[{h2 1 900 7} {h1 9 150 3} {gone 7 70 0}]",
	} {
		a, err := v.top(t.Context(), &ask.Query{Values: url.Values{"by": {by}}})
		must.OK(t, err)
		top := a.(answer.Top)
		expect.Equal(t, fmt.Sprint(top.Clients), want, "by %s", by)
		expect.Equal(t, fmt.Sprint(top.Watched, top.Truncated), "[{/w1 0 0 2} {/w2 0 0 1}]")
	}
	a, err := v.top(t.Context(), &ask.Query{Values: url.Values{"limit": {"1"}}})
	must.OK(t, err)
	expect.Equal(t, len(a.(answer.Top).Clients), 1)
}

// Only the newest samples are kept. Each has the counts at its time.
func TestSamplesOfRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &busy{conns: []report.Conn{{Session: 1}}}
		v := viewOf(s)
		ctx, cancel := context.WithCancel(t.Context())
		go v.sampleRates(ctx)
		began := time.Now()
		for i := range sampleKept + 2 {
			time.Sleep(sampleEvery)
			synctest.Wait()
			v.rates.mu.Lock()
			expect.Equal(t, len(v.rates.samples), min(i+1, sampleKept))
			s.conns[0].Received++
			v.rates.mu.Unlock()
		}
		cancel()
		synctest.Wait()
		for i, kept := range v.rates.samples {
			expect.Equal(t, kept.at, began.Add(time.Duration(i+3)*sampleEvery))
			expect.Equal(t, kept.counts[1].Requests, int64(i+2))
		}
	})
}

// The type busy is a Source with clients. Session n has n watches.
type busy struct {
	told
	conns []report.Conn
}

func (s *busy) Conns() []report.Conn         { return s.conns }
func (s *busy) WatchCount(session int64) int { return int(session) }
func (s *busy) GoneClients() map[string]observe.Count {
	return map[string]observe.Count{"gone": {Requests: 7, Bytes: 70}}
}
func (s *busy) WatchScan(f func(path string, session int64) bool) {
	for _, path := range []string{"/w1", "/w2", "/w1"} {
		if !f(path, 1) {
			return
		}
	}
}

// The type crowded is a Source with an endless list of watches.
type crowded struct {
	busy
	told int
}

func (s *crowded) WatchScan(f func(path string, session int64) bool) {
	for s.told++; f("/w", 1); s.told++ {
	}
}

// The count of watches by path stops at maxWatchScan.
func TestWatchesAreCountedUpToABound(t *testing.T) {
	s := &crowded{}
	v := viewOf(s)
	v.rates.samples = []sample{{}}
	a := must.Get(v.top(t.Context(), &ask.Query{Values: url.Values{}}))(t).(answer.Top)
	expect.Equal(t, a.Watched[0].Watches, maxWatchScan, "watches counted")
	expect.Equal(t, s.told, maxWatchScan+1, "watches looked at")
	expect.Has(t, a.Truncated, "too many watches")
}
