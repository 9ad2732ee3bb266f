package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The commands take, renew, list and give back tickets while other contenders exist.
func TestTicketsByCommand(t *testing.T) {
	env := map[string]string{"ZLOCK_HTTP": ticketServer(t)}
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
	zlock(0, "take", "--ticket-file", one, "/staging") // the file already has a ticket, which is returned
	_, errs = zlock(call.ExitNotAcquired, "take", "--ticket-file", two, "-w", "50ms", "/staging")
	says := func(pattern string) {
		t.Helper()
		expect.That(t, regexp.MustCompile(pattern).MatchString(errs), "take says %q, want %s", errs, pattern)
	}
	says(`^zlock: /staging is held by .+ since \d\d:\d\d:\d\d \(demo\); place 1 of 2\n$`)
	_, errs = zlock(call.ExitNotAcquired, "take", "--ticket-file", two, "-w", "50ms", "--quiet", "/staging")
	expect.Equal(t, errs, "", "what take says with --quiet")
	_, errs = zlock(call.ExitNotAcquired, "take", "-n", "/staging")
	says(`^zlock: take: /staging is held by .+ \(demo\)\n$`)
	expect.Has(t, errs, "demo")
	zlock(call.ExitNotAcquired, "take", "-n", "/staging")
	zlock(call.ExitFailed, "take", "--ticket-file", one, "/other")
	out, _ := zlock(0, "tickets", "-o", "plain")
	expect.Equal(t, strings.Count(out, "/staging"), 2, "tickets: %s", out)
	zlock(0, "renew", "--ticket-file", one)
	zlock(call.ExitNotAcquired, "renew", "--ticket-file", two)
	zlock(0, "give", "--ticket-file", one)
	_, err := os.Stat(one)
	expect.That(t, os.IsNotExist(err), "the ticket file is still there")
	zlock(0, "take", "--ticket-file", two, "-w", "30s", "/staging")
	ticket := must.Get(os.ReadFile(two))(t)
	zlock(0, "give", "--ticket-file", two)
	env["ZLOCK_TICKET"] = string(ticket)
	zlock(0, "give") // the ticket is given back already
	zlock(call.ExitNo, "renew")
	delete(env, "ZLOCK_TICKET")
	out, _ = zlock(0, "take", "/staging") // without a file the ticket is printed
	env["ZLOCK_TICKET"] = out
	zlock(0, "give")
	out, _ = zlock(0, "tickets", "-o", "plain")
	expect.Equal(t, strings.TrimSpace(out), "", "tickets that are left")
}

// ticketServer starts a server with a port for tickets, and returns its address.
func ticketServer(t *testing.T) (url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i := must.Get(zlockd.Start(ctx, zlockd.Options{TicketAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = i.Close(ctx)
	})
	must.OK(t, i.Ready(ctx))
	return "http://" + i.TicketAddr()
}

// The command lines of the skill work as written.
func TestSkillsCommandLinesWork(t *testing.T) {
	url := ticketServer(t)
	page := string(must.Get(os.ReadFile("../../examples/agents/zlock/SKILL.md"))(t))
	_, lines, found := strings.Cut(page, "```sh\n")
	lines, _, closed := strings.Cut(lines, "```")
	must.That(t, found && closed, "the skill has no command lines")
	lines = strings.ReplaceAll(lines, "/tmp/", t.TempDir()+"/")
	cmd := exec.Command("bash", "-ec", lines)
	cmd.Env = []string{leashed + "=" + os.Getenv(leashed), "PATH=" + built.dir + ":" + os.Getenv("PATH"),
		"ZLOCK_HTTP=" + url}
	out, err := cmd.CombinedOutput()
	expect.OK(t, err, "%s", out)
}
