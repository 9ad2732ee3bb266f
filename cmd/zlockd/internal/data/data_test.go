package data

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/test/expect"
)

// call() returns a call of a data command with its signals.
func call(signals ...os.Signal) *Call {
	ch := make(chan os.Signal, len(signals))
	for _, sig := range signals {
		ch <- sig
	}
	return &Call{Signals: ch, Call: &cli.Call{Name: "verify"}}
}

// A signal interrupts a data command, which undoes what it has begun. A second signal ends the program at
// once.
func TestSignalsDuringADataCommand(t *testing.T) {
	undone := false
	err := call(os.Interrupt).untilSignal(func(c *Call) error {
		<-c.ctx.Done()
		undone = true
		return c.ctx.Err()
	})
	expect.That(t, undone, "undone %v, %v", undone, err)
	if expect.Fails(t, err) {
		expect.Equal(t, err.Error(), "verify was interrupted", "undone: error")
	}

	blocked := make(chan struct{})
	defer close(blocked)
	err = call(os.Interrupt, os.Interrupt).untilSignal(func(*Call) error { <-blocked; return nil })
	expect.That(t, cli.HasCode(err, ExitAtOnce), "%v", err)
}

// A data command returns its error, and says what to do about a full disk. It saves memory unless the
// operator has set GOGC.
func TestDataCommandOnAFullDisk(t *testing.T) {
	for _, c := range []struct {
		env     string
		err     error
		percent int
		hint    bool
	}{{"", nil, 25, false}, {"100", errors.New("no"), 77, false}, {"", syscall.ENOSPC, 25, true}} {
		t.Setenv("GOGC", c.env)
		old := debug.SetGCPercent(77)
		var ctx context.Context
		err := call().untilSignal(func(c1 *Call) error { ctx = c1.ctx; return c.err })
		percent := debug.SetGCPercent(old)
		expect.Is(t, err, c.err)
		expect.Equal(t, percent, c.percent, "GOGC=%q", c.env)
		expect.Equal(t, err != nil && strings.Contains(err.Error(), "Make room"), c.hint, "%v", err)
		expect.Fails(t, ctx.Err(), "the context of a call outlives it")
	}
}
