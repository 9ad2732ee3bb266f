//go:build !windows

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// ticketRunner is a server with a port for tickets, and the environment of a zlock that uses it.
type ticketRunner struct {
	t    *testing.T
	urls string
	dir  string
}

func startTicketRunner(t *testing.T) *ticketRunner {
	url := ticketServer(t)
	return &ticketRunner{t, url, t.TempDir()}
}

// start starts a zlock.
func (s *ticketRunner) start(args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	cmd = exec.Command(filepath.Join(built.dir, "zlock"), args...)
	cmd.Dir, cmd.Env = s.dir, append(scriptEnv(s.t), "ZLOCK_HTTP="+s.urls)
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, errs
	must.OK(s.t, cmd.Start())
	return cmd, out, errs
}

// zlock() runs a zlock, which must end with the exit code `code`, and returns what it wrote.
func (s *ticketRunner) zlock(code int, args ...string) (out, errs string) {
	s.t.Helper()
	cmd, o, e := s.start(args...)
	expect.Equal(s.t, exitCode(cmd.Wait()), code, "zlock %q: %s%s", args, o, e)
	return o.String(), e.String()
}

// COMMAND runs while a ticket holds the lock. The ticket stays when COMMAND ends, unless --give is set.
func TestRunUnderATicket(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	s.zlock(0, "take", "--ticket-file", "a", "--ttl", "20s", "/l")
	show := "echo $ZLOCK_PATH $ZLOCK_MODE $ZLOCK_HELD; test $ZLOCK_TOKEN -gt 0; exit 7"
	out, _ := s.zlock(7, "run", "--ticket-file", "a", "-c", show)
	expect.Equal(t, out, "/l exclusive 1\n")
	s.zlock(0, "renew", "--ticket-file", "a")
	s.zlock(call.ExitNotAcquired, "take", "--ticket-file", "b", "/l")
	_, errs := s.zlock(9, "run", "--ticket-file", "b", "-n", "-E", "9", "--", "true")
	expect.Has(t, errs, "/l is held by ")
	_, errs = s.zlock(call.ExitNotAcquired, "run", "--ticket-file", "b", "-q", "-w", "50ms", "--", "true")
	expect.Equal(t, errs, "", "what it says with --quiet")
	waiter, waited, _ := s.start("run", "--ticket-file", "b", "--", "echo", "it holds")
	s.zlock(3, "run", "--ticket-file", "a", "--give", "/l", "--", "sh", "-c", "exit 3")
	expect.OK(t, waiter.Wait())
	expect.Equal(t, waited.String(), "it holds\n")
	_, err := os.Stat(filepath.Join(s.dir, "a"))
	expect.That(t, os.IsNotExist(err), "the file of the ticket that was given back is there")
	denied := filepath.Join(s.dir, "broken")
	must.OK(t, os.WriteFile(denied, []byte("#!/no/such/program\n"), 0o755))
	for command, code := range map[string]int{"no-such-command": 127, denied: 127} {
		s.zlock(0, "take", "--ticket-file", "g", "/g")
		s.zlock(code, "run", "--ticket-file", "g", "--", command)
		s.zlock(0, "renew", "--ticket-file", "g")
		s.zlock(code, "run", "--ticket-file", "g", "--give", "--", command)
		_, err = os.Stat(filepath.Join(s.dir, "g"))
		expect.That(t, os.IsNotExist(err), "the ticket of a COMMAND that cannot start is kept: %s", command)
	}
	s.zlock(0, "take", "--semaphore", "3", "--ticket-file", "p", "/s")
	out, _ = s.zlock(0, "run", "--ticket-file", "p", "-c", "echo $ZLOCK_SLOT $ZLOCK_MODE")
	expect.Equal(t, out, "1 permit\n")
	for _, args := range []string{"--ticket-file p --shared", "--ticket-file p --inherit",
		"--ticket-file p /a /b", "--ticket-file p /other", "--ticket-file p -n -w 1", "",
		"-S 127.0.0.1:1 --ticket-file p"} {
		s.zlock(call.ExitFailed, append(append([]string{"run"}, strings.Fields(args)...), "--", "true")...)
	}
	s.zlock(0, "take", "--ticket-file", "short", "--ttl", "5s", "/short")
	_, errs = s.zlock(call.ExitFailed, "run", "--ticket-file", "short", "--", "true")
	expect.Has(t, errs, "--ttl")
	s.zlock(0, "run", "--ticket-file", "short", "-k", "1", "--", "true")
	s.zlock(call.ExitNoSession, "run", "--rate", "1/1s", "/x", "--http", "http://127.0.0.1:1",
		"--connect-timeout", "1", "--", "true")
	s.zlock(call.ExitNoSession, "run", "--ticket-file", "short", "--http", "http://127.0.0.1:1",
		"--connect-timeout", "1", "--", "true")
}

// Every command line of docs/tickets.md works as written.
func TestCommandsOfThePageRun(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	page := string(must.Get(os.ReadFile("../../docs/tickets.md"))(t))
	lines := regexp.MustCompile(`(?m)^zlock ([a-z].*?)(?:   *[^ ].*)?$`).FindAllStringSubmatch(page, -1)
	must.That(t, len(lines) >= 8, "the page has %d commands", len(lines))
	file := filepath.Join(s.dir, "t")
	for n, line := range lines {
		args := strings.Fields(strings.ReplaceAll(line[1], "COMMAND", "true"))
		_, err := os.Stat(file)
		switch mine := strings.Contains(line[1], "--ticket-file t"); {
		case args[0] == "take":
			_ = os.Remove(file) // an earlier line has left the ticket of another path in this file
		case mine && err != nil:
			s.zlock(0, "take", "--ticket-file", "t", fmt.Sprint("/again/", n))
		}
		s.zlock(0, args...)
	}
}

// A hold may end between two of zlock's requests, while COMMAND runs. The exit code says so, even if COMMAND
// succeeds.
func TestRunUnderATicketThatAnotherEnded(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	zlock := filepath.Join(built.dir, "zlock")
	// The second run does without --give: --leave takes its place.
	for _, give := range []string{"--give", "--leave"} {
		s.zlock(0, "take", "--ticket-file", "a", "/l")
		_, errs := s.zlock(call.ExitLost, "run", "--ticket-file", "a", give, "-c", "cp a b && "+zlock+
			" give --ticket-file b")
		expect.Has(t, errs, "given back", give)
		must.OK(t, os.Remove(filepath.Join(s.dir, "a")))
	}
}

// COMMAND ends with its ticket, even if it would run longer. zlock says why.
func TestRunUnderATicketThatEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("COMMANDs that outlive the time of a ticket")
	}
	t.Parallel()
	s := startTicketRunner(t)
	s.zlock(0, "take", "--ticket-file", "a", "--ttl", "5s", "/l")
	s.zlock(0, "run", "--ticket-file", "a", "-k", "1", "--", "sleep", "8")
	cmd, _, errs := s.start("run", "--ticket-file", "a", "-k", "1", "--", "sleep", "1000")
	time.Sleep(time.Second)
	s.zlock(0, "give", "/l", "--ticket-file", "a")
	expect.Equal(t, exitCode(cmd.Wait()), call.ExitLost, "the exit code")
	expect.Has(t, errs.String(), "given back")
	until := time.Now().Add(6 * time.Second).UTC().Format(time.RFC3339)
	s.zlock(0, "take", "--ticket-file", "u", "--until", until, "/u")
	_, text := s.zlock(call.ExitLost, "run", "--ticket-file", "u", "-k", "1", "--", "sleep", "1000")
	expect.That(t, strings.Contains(text, "the ticket's time is over") ||
		strings.Contains(text, "(expired)"), "it says %s", text)
	_, text = s.zlock(call.ExitLost, "run", "--ticket-file", "u", "-k", "1", "--", "true")
	expect.That(t, strings.Contains(text, "the ticket ends in") || strings.Contains(text, "(expired)"),
		"it says %s", text)
}

// If one of the ports is silent but another one answers, COMMAND does not end early. If none answers, zlock
// ends COMMAND before the ticket can end.
func TestRunUnderATicketWhoseServersFail(t *testing.T) {
	if testing.Short() {
		t.Skip("COMMANDs that outlive the time of a ticket")
	}
	t.Parallel()
	s := startTicketRunner(t)
	s.zlock(0, "take", "--ticket-file", "a", "--ttl", "5s", "/l")
	real := must.Get(url.Parse(s.urls))(t)
	var off atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(real)
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if off.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.Host = real.Host
		proxy.ServeHTTP(w, r)
	})}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { _ = front.Serve(l) }()
	defer front.Close()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) // accepts connections and never answers
	defer silent.Close()
	urls := fmt.Sprintf("http://%s,http://%s", l.Addr(), silent.Addr())
	cmd, _, errs := s.start("run", "--ticket-file", "a", "-k", "1", "--http", urls, "--", "sh", "-c",
		"sleep 6; touch on; exec sleep 1000")
	must.Await(t, "COMMAND lives for longer than its ticket's time", time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "on"))
		return err == nil
	})
	off.Store(true)
	expect.Equal(t, exitCode(cmd.Wait()), call.ExitLost, "the exit code; it says %s", errs)
	expect.Has(t, errs.String(), "no server has renewed the ticket")
}

// With --rate, zlock starts COMMAND as soon as a draw is granted, and COMMAND takes the place of the zlock
// process.
func TestRunByRate(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	out, _ := s.zlock(5, "run", "--rate", "2/3s", "/api", "-c", "echo one; exit 5")
	expect.Equal(t, out, "one\n")
	s.zlock(0, "run", "--rate", "2/3", "/api", "--", "true")
	_, errs := s.zlock(call.ExitNotAcquired, "run", "--rate", "2/3s", "-n", "/api", "--", "true")
	expect.Has(t, errs, "/api has had 2 draws within 3s: the next draw is free at ")
	_, errs = s.zlock(4, "run", "--rate", "2/3s", "-q", "-w", ".1", "-E", "4", "/api", "--", "true")
	expect.Equal(t, errs, "", "what it says with --quiet")
	s.zlock(0, "run", "--rate", "2/3s", "/api", "--", "true")
	for _, args := range []string{"--rate 2 /api", "--rate 0/1s /api", "--rate 1/x /api", "--rate 1/1s /api /b",
		"--rate 1/1s", "--rate 1/1s --shared /api", "--rate 1/1s -n -w 1 /api"} {
		s.zlock(call.ExitFailed, append(append([]string{"run"}, strings.Fields(args)...), "--", "true")...)
	}
	s.zlock(0, "run", "--rate", "1/1h", "/once", "--", "true")
	waiter, _, _ := s.start("run", "--rate", "1/1h", "/once", "--", "true")
	time.Sleep(200 * time.Millisecond)
	must.OK(t, waiter.Process.Signal(syscall.SIGTERM))
	expect.Equal(t, exitCode(waiter.Wait()), 128+int(syscall.SIGTERM), "the exit code of an ended waiter")
}

// If zlock take cannot report its ticket, it gives the ticket back. Otherwise the ticket would hold the lock
// for its whole life.
func TestTakeLeavesNoTicketThatItDoesNotTell(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	s.zlock(0, "take", "--ticket-file", "a", "/l")
	left := func(want int) bool {
		out, _ := s.zlock(0, "tickets", "-o", "plain")
		return strings.Count(out, "\n") == want
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd, out, errs := s.start("take", "--ttl", "1h", "-w", "1h", "/l")
		must.Await(t, "it waits", time.Minute, func() bool { return left(2) })
		must.OK(t, cmd.Process.Signal(sig))
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		expect.That(t, status.Signal() == sig || status.ExitStatus() == 128+int(sig), "%v: it ends by %v: %s",
			sig, cmd.ProcessState, errs)
		expect.Equal(t, out.String(), "", "%v: what it prints", sig)
		expect.That(t, left(1), "%v: its ticket is left", sig)
	}
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "take", "/free")
	cmd.Env = append(scriptEnv(t), "ZLOCK_HTTP="+s.urls)
	read, write, err := os.Pipe()
	must.OK(t, errors.Join(err, read.Close()))
	cmd.Stdout = write
	expect.Equal(t, exitCode(cmd.Run()), call.ExitFailed, "the exit code without a reader")
	expect.That(t, left(1), "without a reader: its ticket is left")
	out, errs := s.zlock(call.ExitNoSession, "take", "/free", "--http", "http://127.0.0.1:1", "--timeout", ".3")
	expect.Has(t, out, " /free\n")
	expect.Has(t, errs, "zlock give")
}

// If no server answers, zlock take gives up after --timeout, even if it may wait for the lock much longer.
func TestTakeGivesUpWithoutServersWhileItWaits(t *testing.T) {
	t.Parallel()
	const wait = 30 * time.Second
	s := startTicketRunner(t)
	begun := time.Now()
	s.zlock(call.ExitNoSession, "take", "/l", "--ticket-file", "a", "--http", "http://127.0.0.1:1",
		"--timeout", ".3", "-w", wait.String())
	took := time.Since(begun)
	expect.That(t, took < wait/2, "it gave up after %v", took)
}

// The answer of a proxy, or of a program at a wrong address, says nothing about a ticket. zlock reports an
// error.
func TestAnswersOfOtherPrograms(t *testing.T) {
	t.Parallel()
	s := startTicketRunner(t)
	s.zlock(0, "take", "--ttl", "1h", "--ticket-file", "a", "/l")
	t.Run("all", func(t *testing.T) { testAnswersOfOtherPrograms(t, s.dir) })
	s.zlock(call.ExitFailed, "give", "--ticket-file", "a", "--http", s.urls+"/elsewhere")
	s.zlock(0, "renew", "--ticket-file", "a")
}

func testAnswersOfOtherPrograms(t *testing.T, dir string) {
	for what, answer := range map[string]struct {
		code int
		body string
	}{"a page that is not there": {404, `{"message":"no route"}`}, "a redirection": {302, ""},
		"an empty object": {200, "{}"}, "no content": {200, ""}, "gone": {410, ""}, "a page": {200, "<html>"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(answer.code)
				fmt.Fprint(w, answer.body)
			}))
			defer other.Close()
			s := &ticketRunner{t, other.URL, dir}
			for _, command := range []string{"take", "renew", "give"} {
				_, errs := s.zlock(call.ExitNoSession, command, "--ticket-file", "a", "--timeout", "1", "/l")
				expect.Has(t, errs, "is not a port for tickets")
			}
			s.zlock(call.ExitNoSession, "run", "--ticket-file", "a", "--connect-timeout", "1", "--", "true")
		})
	}
}
