package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/must"
)

func TestQuantileIsWithinABucket(t *testing.T) {
	var a, b hist
	for i := 1; i <= 1000; i++ {
		h := &a
		if i%2 == 0 {
			h = &b
		}
		h.add(time.Duration(i) * time.Millisecond)
	}
	a.merge(&b)
	for q, want := range map[float64]float64{0.5: 500, 0.99: 990, 0.1: 100} {
		if got := ms(a.quantile(q)); math.Abs(got-want)/want > 0.05 {
			t.Errorf("quantile %v: %.1f ms, want about %.0f", q, got, want)
		}
	}
	if a.n != 1000 || a.max != time.Second || a.quantile(1) != time.Second {
		t.Errorf("n %d, max %v, last %v", a.n, a.max, a.quantile(1))
	}
}

func TestPredecessorIsTheNextSmallerName(t *testing.T) {
	list := jute.AppendStrings(nil, []string{"lock-0000000007", "lock-0000000003", "lock-0000000009",
		"lock-0000000005"})
	for mine, want := range map[string]string{
		"lock-0000000003": "", "lock-0000000005": "lock-0000000003", "lock-0000000009": "lock-0000000007",
	} {
		if got := predecessor(list, mine); got != want {
			t.Errorf("before %s: %q, want %q", mine, got, want)
		}
	}
}

func TestSelectionTakesPointsAndFamilies(t *testing.T) {
	for _, c := range []struct {
		selection, point string
		want             bool
	}{
		{"", "set@16", true}, {"set", "set@16", true}, {"set@16", "set@16", true}, {"set@16", "set@16x16", false},
		{"get,handoff", "handoff:10", true}, {"start", "startup", false},
	} {
		if got := (point{name: c.point}).matches(c.selection); got != c.want {
			t.Errorf("%q matches %q: %v", c.selection, c.point, got)
		}
	}
}

func TestRatioSaysHowManyTimesBetter(t *testing.T) {
	if got := ratio(200, 100, false); got != 2 {
		t.Errorf("twice the rate: %v", got)
	}
	if got := ratio(1, 4, true); got != 4 {
		t.Errorf("a quarter of the time: %v", got)
	}
	if got := ratio(0, 0, true); got != 1 {
		t.Errorf("nothing against nothing: %v", got)
	}
}

func TestNumberKeepsThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{1234567: "1,234,567", 999.6: "1000", 123.4: "123", 12.34: "12.3",
		1.234: "1.23", 8: "8"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// The points that need no servers of their own run for a moment each. None may fail or leave nodes on the
// server.
func TestPointsRunAgainstAServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	i, err := server.Start(ctx, server.Options{
		ClientAddr: "127.0.0.1:0", MaxConnsPerAddr: -1,
		Logger: slog.New(slog.DiscardHandler),
	})
	must.OK(t, err)
	defer i.Close(ctx)
	must.OK(t, i.Ready(ctx))
	c := &config{a: "addrs=" + i.ClientAddr(), b: "none", nodes: 1, dir: t.TempDir()}
	c.defaults(1, 5*time.Millisecond, 50*time.Millisecond, 10, 100)
	sides := must.Get(c.sides())(t)
	rep := newReport(c, sides)
	for _, p := range points(c) {
		if p.alone || p.name == "idle" || p.name == "fanout:1000" || p.name == "set@256" || p.name == "handoff:100" {
			continue // these points take long, or start servers of their own
		}
		// On a busy machine little may happen in the first duration.
		var out outcome
		measured := false
		for _, c.duration = range []time.Duration{50 * time.Millisecond, time.Second, 20 * time.Second} {
			out, err = c.measurePoint(p, sides)
			if measured = err == nil && len(out.rounds) == 1 && out.rounds[0][0] != nil &&
				out.rounds[0][0].metrics[0].value > 0; measured {
				break
			}
		}
		if !measured {
			t.Errorf("%s: %v, %v", p.name, out.rounds, err)
		}
		rep.add(p, out, err)
	}
	var text strings.Builder
	rep.print(&text)
	for _, want := range []string{"| `lock@64` | /s | ", "| `handoff:10` rate | /s | ", "| `herd:100` | ms | "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	left := must.Get(sides[0].dial())(t)
	defer left.Close()
	left.Children("/", false)
	r := must.Get(left.Do())(t)
	d := jute.NewDecoder(r.Body)
	if names, _ := d.Strings(); fmt.Sprint(names) != "[zookeeper]" {
		t.Errorf("left behind: %v", names)
	}
}
