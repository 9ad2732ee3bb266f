package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// If the server stops answering, at whatever point, a command that only reads data still ends by itself.
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
	} {
		command, _, _ := strings.Cut(name, " ")
		for answers := 1; answers <= 4; answers++ {
			if name == "run -n" && answers != 2 {
				continue // with -n, zlock always waits for the whole AnswerTimeout, so do this only once
			}
			t.Run(fmt.Sprintf("%s after %d", name, answers), func(t *testing.T) {
				t.Parallel()
				p := must.Get(faultproxy.New(server(t)))(t)
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
				if answers == 1 && err == nil { // the server has answered only the connect request
					t.Errorf("exit code 0 without an answer\n%s", out)
				}
				expect.That(t, !strings.Contains(string(out), "--help"), "%s", out)
			})
		}
	}
}

// zlock sends the super user's password neither to a proxy that the environment names nor to the target of a
// redirect.
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

// A command fails if it cannot read an answer of the admin listener.
func TestAnswersThatAreNotUnderstood(t *testing.T) {
	for body, args := range map[string][]string{
		`{"holders":`:                    {"show", "/a", "--server"},
		`{"layouts":["of tomorrow"]}`:    {"show", "/b", "--server"},
		`{"locks":0}`:                    {"ls", "--server"},
		`{"edges":[{"from":0,"to":1}]}`:  {"wait-graph", "--server"},
		`{"edges":[{"from":-1,"to":0}]}`: {"wait-graph", "/a", "--server"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(body))
		}))
		out, errs, code := runIn(t, map[string]string{"ZLOCK_ADMIN": s.Listener.Addr().String()}, args...)
		s.Close()
		expect.That(t, code != 0, "%s: exit %d, %s%s", body, code, out, errs)
		expect.Has(t, errs, "not understood", "%s: standard error", body)
	}
}

// A command shows a shortened answer, and says once that the answer is incomplete.
func TestAnswersThatAreCutAreSaidToBe(t *testing.T) {
	pages := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		next := ""
		if pages == 1 {
			next = `,"next":1`
		}
		fmt.Fprintf(w, `{"locks":[{"path":"/l%d"}],"truncated":"too many: 3,000"%s}`, pages, next)
	}))
	defer s.Close()
	out, errs, code := runIn(t, map[string]string{"ZLOCK_ADMIN": s.Listener.Addr().String()}, "ls", "--server",
		"-o", "plain")
	expect.Equal(t, code, call.ExitOK, "exit code")
	expect.That(t, strings.HasPrefix(out, "/l1\t"), "%s", out)
	expect.Has(t, out, "\n/l2\t", "standard output")
	expect.Equal(t, strings.Count(errs, "\n"), 1, "lines said")
	expect.That(t, strings.HasSuffix(errs, "is incomplete: too many: 3,000\n"), "said: %s", errs)
}

// A server that was removed, or has no leader, may answer with old data. The command says so once.
func TestAnswersThatMayBeOldAreSaidToBe(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(answer.Stale, "this server was removed")
		fmt.Fprint(w, `{"locks":[{"path":"/l1"}]}`)
	}))
	defer s.Close()
	out, errs, code := runIn(t, map[string]string{"ZLOCK_ADMIN": s.Listener.Addr().String()}, "ls", "--server",
		"-o", "plain")
	expect.Equal(t, code, call.ExitOK, "exit code")
	expect.That(t, strings.HasPrefix(out, "/l1\t"), "%s", out)
	expect.Equal(t, strings.Count(errs, "\n"), 1, "lines said")
	expect.That(t, strings.HasSuffix(errs, "may be old: this server was removed\n"), "said: %s", errs)
}

// If the server does not know which contender holds the lock, zlock does not report the lock as free.
func TestShowTellsOfContendersThatAreNotUnderstood(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"path":"/l","kind":"unknown",
			"participants":[{"node":"x-1","session":"0x1","token":"1"}]}`)
	}))
	defer s.Close()
	env := map[string]string{"ZLOCK_ADMIN": s.Listener.Addr().String()}
	out, _, code := runIn(t, env, "show", "--server", "/l")
	expect.Equal(t, code, call.ExitNo, "exit code")
	expect.Has(t, out, "1 contenders at /l, but it is not known which of them hold it")
}

// For each command, the documentation names each field of the answer in JSON.
func TestAnswersInJSONAreDescribed(t *testing.T) {
	lines := map[string]string{}
	for _, file := range []string{"zlock.md", "data.md"} {
		b := must.Get(os.ReadFile("../../docs/" + file))(t)
		_, part, found := strings.Cut(string(b), "\n## Answers in JSON\n")
		must.That(t, found, "docs/%s does not describe answers in JSON", file)
		part, _, _ = strings.Cut(part, "\n## ")
		for line := range strings.Lines(part) {
			if cells := strings.Split(line, "|"); len(cells) > 3 {
				names := strings.ReplaceAll(strings.ReplaceAll(cells[1], "`", ""), "zlock ", "")
				for name := range strings.SplitSeq(names, ",") {
					name, _, _ = strings.Cut(strings.TrimSpace(name), " ") // of "member list" keep "member"
					lines[name] += line
				}
			}
		}
	}
	for _, c := range program(new(call.App)).Commands {
		for _, o := range c.Prints {
			for _, name := range fieldsOf(reflect.TypeOf(o)) {
				expect.Has(t, lines[c.Name], "`"+name+"`", "%s: the field %s is not described", c.Name, name)
			}
		}
	}
}

// fieldsOf returns the names of an object's fields.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fieldsOf(f.Type)...)
		case f.IsExported() && name != "-":
			names = append(names, name)
		}
	}
	return names
}

// Each JSON object has the field "v", the version of the answer format, exactly once.
func TestAnswersInJSONHaveAVersion(t *testing.T) {
	all := map[string]any{"empty": struct{}{}, "a server's": json.RawMessage(`{"v":1,"id":"0x1"}`),
		"a part of a server's": json.RawMessage(`{"id":"0x1"}`)}
	for _, c := range program(new(call.App)).Commands {
		if len(c.Prints) > 0 {
			all[c.Name] = c.Prints[0]
		}
	}
	expect.That(t, len(all) > 12, "objects of %d commands only", len(all))
	for what, o := range all {
		var b bytes.Buffer
		p := (&call.App{Stdout: &b}).Printer(call.JSON)
		p.Row(o)
		written := p.Flush()
		var read struct{ V int }
		err := json.Unmarshal(b.Bytes(), &read)
		if expect.OK(t, err, "%s", what) {
			expect.Equal(t, read.V, 1, "%s", what)
			expect.That(t, written == nil, "%s: %s %v %v", what, &b, err, written)
			expect.That(t, strings.HasPrefix(b.String(), `{"v":1`), "%s: %s %v %v", what, &b, err, written)
			expect.That(t, strings.Count(b.String(), `"v":`) <= 1, "%s: %s %v %v", what, &b, err, written)
		}
	}
}
