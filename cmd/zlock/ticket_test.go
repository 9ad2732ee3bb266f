package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A ticket is taken, renewed, listed and given back by the command, whatever else holds the lock.
func TestTicketsByCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i := must.Get(zlockd.Start(ctx, zlockd.Options{TicketAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}))(t)
	defer func() { _ = i.Close(ctx) }()
	must.OK(t, i.Ready(ctx))
	env := map[string]string{"ZLOCK_HTTP": "http://" + i.TicketAddr()}
	zlock := func(code int, args ...string) (out, errs string) {
		t.Helper()
		out, errs, got := runIn(t, env, args...)
		expect.Equal(t, got, code, "zlock %q: %s%s", args, out, errs)
		return out, errs
	}
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	_, errs := zlock(0, "take", "--ticket-file", one, "--reason", "demo", "--until", "FRI-18:00", "/staging")
	expect.Has(t, errs, "held ")
	info := must.Get(os.Stat(one))(t)
	expect.Equal(t, info.Mode().Perm(), os.FileMode(0o600), "the mode of the ticket file")
	zlock(0, "take", "--ticket-file", one, "/staging") // it goes on
	_, errs = zlock(exitNotAcquired, "take", "--ticket-file", two, "-w", "50ms", "/staging")
	says := func(pattern string) {
		t.Helper()
		expect.That(t, regexp.MustCompile(pattern).MatchString(errs), "take says %q, want %s", errs, pattern)
	}
	says(`^zlock: /staging is held by .+ since \d\d:\d\d:\d\d \(demo\); place 1 of 2\n$`)
	_, errs = zlock(exitNotAcquired, "take", "--ticket-file", two, "-w", "50ms", "--quiet", "/staging")
	expect.Equal(t, errs, "", "what take says with --quiet")
	_, errs = zlock(exitNotAcquired, "take", "-n", "/staging")
	says(`^zlock: take: /staging is held by .+ \(demo\)\n$`)
	expect.Has(t, errs, "demo")
	zlock(exitNotAcquired, "take", "-n", "/staging")
	zlock(exitFailed, "take", "--ticket-file", one, "/other")
	out, _ := zlock(0, "tickets", "-o", "plain")
	expect.Equal(t, strings.Count(out, "/staging"), 2, "tickets: %s", out)
	zlock(0, "renew", "--ticket-file", one)
	zlock(exitNotAcquired, "renew", "--ticket-file", two)
	zlock(0, "give", "--ticket-file", one)
	_, err := os.Stat(one)
	expect.That(t, os.IsNotExist(err), "the ticket file is still there")
	zlock(0, "take", "--ticket-file", two, "-w", "30s", "/staging")
	ticket := must.Get(os.ReadFile(two))(t)
	zlock(0, "give", "--ticket-file", two)
	env["ZLOCK_TICKET"] = string(ticket)
	zlock(0, "give") // again
	zlock(exitNo, "renew")
	delete(env, "ZLOCK_TICKET")
	out, _ = zlock(0, "take", "/staging") // it prints the ticket
	env["ZLOCK_TICKET"] = out
	zlock(0, "give")
	out, _ = zlock(0, "tickets", "-o", "plain")
	expect.Equal(t, strings.TrimSpace(out), "", "tickets that are left")
}

func TestMomentsAsPeopleWriteThem(t *testing.T) {
	friday := time.Date(2026, 11, 27, 19, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"": "", "18:00": "2026-11-28T18:00:00Z",
		"20:00": "2026-11-27T20:00:00Z", "FRI-18:00": "2026-12-04T18:00:00Z",
		"sat-09:30":                 "2026-11-28T09:30:00Z",
		"2026-12-24T18:00:00+01:00": "2026-12-24T17:00:00Z"} {
		got := must.Get(moment(text, friday))(t)
		expect.Equal(t, got, want, "%q", text)
	}
	for _, text := range []string{"tomorrow", "FREITAG-18:00", "25:00", "-"} {
		_, err := moment(text, friday)
		must.Fails(t, err, "%q", text)
	}
}
