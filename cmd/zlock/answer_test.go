package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// A command that only asks ends by itself at whatever moment the server falls silent.
func TestCommandsEndWhenTheServerFallsSilent(t *testing.T) {
	t.Parallel()
	sequencer := fence.Sequencer{Path: "/l", Mode: fence.Exclusive, Token: 7, Node: "lock-0000000003"}.String()
	short := []string{"--timeout", "0.7"}
	for name, args := range map[string][]string{
		"check":           append(short, "/l", "--token", "5"),
		"check sequencer": append(short, "--sequencer", sequencer),
		"show":            append(short, "/l"),
		"holders":         append(short, "/l"),
		"ls":              short,
		"wait-graph":      short,
		"leader":          append(short, "/e"),
		"revoke":          append(short, "/l"),
		"break":           append(short, "/l", "x", "--token", "1", "--yes"),
		"run":             {"-w", "0.7", "/l", "--", "true"},
		"run -n":          {"-n", "/l", "--", "true"},
		"elect":           {"-w", "0.7", "/e", "--", "true"},
		"barrier":         {"close", "/b"},
	} {
		command, _, _ := strings.Cut(name, " ")
		for answers := 1; answers <= 4; answers++ {
			if slow := command == "barrier" || name == "run -n"; slow && answers != 2 {
				continue // they take the default of --timeout
			}
			t.Run(fmt.Sprintf("%s after %d", name, answers), func(t *testing.T) {
				t.Parallel()
				p, err := faultproxy.New(server(t))
				must.OK(t, err)
				defer p.Close()
				p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Nth: answers, Do: faultproxy.Pass, Then: func() {
					p.Blackhole(true)
				}})
				ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
				defer cancel()
				options := []string{command, "-q", "-S", p.Addr(), "--connect-timeout", "2", "--session-timeout", "12"}
				cmd := exec.CommandContext(ctx, filepath.Join(built.dir, "zlock"), append(options, args...)...)
				cmd.Env = scriptEnv(t)
				out, err := cmd.CombinedOutput()
				if ctx.Err() != nil {
					t.Fatalf("it waits without limit\n%s", out)
				}
				if answers == 1 && err == nil { // that of the session
					t.Errorf("exit code 0 without an answer\n%s", out)
				}
				expect.That(t, !strings.Contains(string(out), "--help"), "%s", out)
			})
		}
	}
}

// ZLOCK_CHROOT counts beside -S; what the command line says of the chroot wins.
func TestChrootOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		flagServers, flagChroot, envServers, envChroot string
		servers, chroot                                string
		fails                                          bool
	}{
		{"", "", "", "", "127.0.0.1:2181", "", false},
		{"a:1", "", "", "/prod", "a:1", "/prod", false},
		{"a:1", "", "b:1", "/prod", "a:1", "/prod", false},
		{"a:1/x", "", "b:1", "/prod", "a:1", "/x", false},
		{"a:1/", "", "", "/prod", "a:1", "", false},
		{"a:1", "/y", "", "/prod", "a:1", "/y", false},
		{"a:1", "/", "", "/prod", "a:1", "", false},
		{"", "", "b:1", "/prod", "b:1", "/prod", false},
		{"", "/y", "b:1", "/prod", "b:1", "/y", false},
		{"", "", "b:1/z", "", "b:1", "/z", false},
		{"", "", "b:1/z", "/prod", "", "", true},
		{"a:1/x", "/y", "", "", "", "", true},
		{"a:1", "y", "", "", "", "", true},
	} {
		f := &connectFlags{servers: c.flagServers, chroot: c.flagChroot}
		servers, chroot, err := f.address(func(name string) string {
			return map[string]string{"ZLOCK_SERVERS": c.envServers, "ZLOCK_CHROOT": c.envChroot}[name]
		})
		if c.fails != (err != nil) || err == nil && (servers != c.servers || chroot != c.chroot) {
			t.Errorf("%+v: %q, %q, %v", c, servers, chroot, err)
		}
	}
}

// No proxy of the environment and no redirection gets to see the super user's password.
func TestPasswordGoesToTheServerOnly(t *testing.T) {
	t.Parallel()
	var strangers atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		strangers.Add(1)
		fmt.Fprint(w, "{}")
	}))
	defer stranger.Close()
	moved := httptest.NewServer(http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	dir := t.TempDir()
	auth, backup := filepath.Join(dir, "auth"), filepath.Join(dir, "backup")
	for file, text := range map[string]string{auth: "digest:super:test\n", backup: "none"} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for _, addr := range []string{"192.0.2.1:8181", strings.TrimPrefix(moved.URL, "http://")} {
		for _, args := range [][]string{
			{"backup", filepath.Join(dir, "new")},
			{"member", "remove", "2"},
			{"end-session", "0x1", "--yes"},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			cmd := exec.CommandContext(ctx, filepath.Join(built.dir, "zlock"), append(args, "--admin-addr", addr,
				"--auth-file", auth, "-w", "1")...)
			cmd.Env = append(scriptEnv(t), "HTTP_PROXY="+stranger.URL, "http_proxy="+stranger.URL, "ALL_PROXY="+
				stranger.URL)
			out, err := cmd.CombinedOutput()
			cancel()
			expect.Fails(t, err, "%v succeeds at %s: %s", args, addr, out)
			must.That(t, strangers.Load() <= 0,
				"%v at %s: another server than the one meant was asked\n%s", args, addr, out)
		}
	}
}
