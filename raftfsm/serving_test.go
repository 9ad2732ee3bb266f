package raftfsm

import (
	"log/slog"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server that stops serving warns, unless it was told to stop: then the others may have stopped, too.
func TestStoppingServerDoesNotWarn(t *testing.T) {
	var log must.Text
	n, _ := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g := &serving{n: n, on: true}
	g.set("a reason")
	expect.Has(t, log.String(), `level=WARN msg="not serving clients" reason="a reason"`)
	n.closed.Store(true)
	g.on = true
	g.set("another reason")
	n.closed.Store(false)
	expect.Has(t, log.String(), `level=INFO msg="not serving clients" reason="another reason"`)
	g.on, g.final = true, true
	g.set("a third reason")
	expect.Has(t, log.String(), `level=INFO msg="not serving clients" reason="a third reason"`)
}
