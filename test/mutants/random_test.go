package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var (
	randomFlag = flag.Int("mutants.random", 0, "how many random edits to plant in each package")
	seedFlag   = flag.Uint64("mutants.seed", 1, "seed of the random edits")
	pkgFlag    = flag.String("mutants.pkg", "",
		"plant random edits only in packages that match this regular expression")
)

// layers lists the packages to edit, each with the packages whose tests may notice an edit: the package
// itself and packages that use it, the fastest first.
var layers = [][]string{
	{"./jute", "./tree", "./session", "./raftfsm/state", "./server/clients/conn", "./server/clients", "./client/zk"},
	{"./tree", "./server/clients/conn", "./server/clients", "./test/sim"},
	{"./tree/acl", "./tree", "./server/clients/conn", "./server/clients"},
	{"./tree/digest", "./tree/acl", "./tree", "./raftfsm/state"},
	{"./tree/watches", "./tree", "./server/clients/conn", "./server/clients", "./test/sim"},
	{"./tree/zkfiles", "./raftfsm/offline", "./server/backup", "./cmd/zlockd/internal/data", "./cmd/zlockd/daemon", "./cmd/zlock"},
	{"./session", "./raftfsm/state", "./raftfsm", "./test/sim"},
	{"./raftfsm/state", "./raftfsm/offline", "./raftfsm", "./test/sim"},
	{"./raftfsm/state/entries", "./raftfsm/state", "./raftfsm/leading", "./raftfsm", "./test/sim"},
	{"./raftfsm/state/window", "./raftfsm/state", "./server/tickets"},
	{"./raftfsm/disk", "./raftfsm/offline", "./raftfsm", "./test/sim"},
	{"./raftfsm/disk/snapshots", "./raftfsm/disk", "./raftfsm"},
	{"./raftfsm/peer", "./raftfsm", "./test/sim"},
	{"./raftfsm/elect", "./raftfsm", "./test/sim"},
	{"./raftfsm/signal", "./raftfsm/stream", "./raftfsm"},
	{"./raftfsm/stream", "./raftfsm", "./test/sim"},
	{"./raftfsm/apply", "./raftfsm", "./test/sim"},
	{"./raftfsm/leading", "./raftfsm", "./test/sim"},
	{"./raftfsm/serving", "./raftfsm", "./test/sim"},
	{"./raftfsm/followers", "./raftfsm", "./test/sim"},
	{"./raftfsm/change", "./raftfsm", "./server/members", "./test/sim"},
	{"./raftfsm/consensus", "./raftfsm", "./test/sim"},
	{"./raftfsm/form", "./raftfsm", "./test/sim"},
	{"./raftfsm/restore", "./raftfsm", "./test/sim"},
	{"./raftfsm/upkeep", "./raftfsm", "./test/sim"},
	{"./raftfsm/seglog", "./raftfsm/disk", "./raftfsm"},
	{"./raftfsm/status", "./raftfsm/peer", "./server/members", "./raftfsm"},
	{"./raftfsm/tlsfiles", "./raftfsm/peer", "./server"},
	{"./raftfsm/offline", "./cmd/zlockd/internal/data", "./cmd/zlockd/daemon"},
	{"./raftfsm", "./server", "./server/clients/conn", "./server/clients", "./test/sim"},
	{"./server", "./server/admin", "./cmd/zlockd/daemon", "./test/sim"},
	{"./server/clients/identity", "./server/clients/conn", "./server/clients", "./server"},
	{"./server/clients/budget", "./server/clients/conn", "./server/clients"},
	{"./server/clients/request", "./server/clients/conn", "./server/clients"},
	{"./server/clients/outbox", "./server/clients/watchers", "./server/clients/conn", "./server/clients"},
	{"./server/clients/watchers", "./server/clients/conn", "./server/clients"},
	{"./server/clients/rest", "./server/clients/conn", "./server/clients"},
	{"./server/clients/ends", "./server/clients/conn", "./server/clients"},
	{"./server/clients/inbox", "./server/clients/conn", "./server/clients"},
	{"./server/clients/options", "./server/clients/conn", "./server/clients"},
	{"./server/clients/entrance", "./server/clients/conn", "./server/clients"},
	{"./server/clients/conn", "./server/clients", "./server/admin", "./server/view", "./test/sim", "./client"},
	{"./server/clients", "./server/admin", "./server/view", "./test/sim", "./client"},
	{"./server/admin", "./server", "./cmd/zlockd/daemon"},
	{"./server/metrics", "./server/admin", "./server/clients/conn", "./server/clients", "./server"},
	{"./server/admin/port", "./server/admin", "./server/view", "./server"},
	{"./server/observe", "./server/clients/conn", "./server/clients", "./server/audit", "./server/admin", "./server"},
	{"./server/audit", "./server", "./cmd/zlockd/daemon"},
	{"./server/members", "./server/admin", "./cmd/zlock", "./cmd/zlockd/daemon"},
	{"./server/backup", "./server", "./cmd/zlockd/daemon"},
	{"./server/sasl", "./server/clients/conn", "./server/clients", "./cmd/zlockd/daemon"},
	{"./server/sasl/kerberos"},
	{"./client/recipe", "./client/recipe/turns", "./server/locks", "./client"},
	{"./client/recipe/turns", "./server/locks", "./server/view", "./client"},
	{"./client/recipe/waits", "./server/locks", "./server/view"},
	{"./server/locks", "./server/view", "./cmd/zlock"},
	{"./server/tickets", "./server", "./cmd/zlock"},
	{"./server/view", "./server", "./cmd/zlock"},
	{"./server/view/ask", "./server/view", "./server"},
	{"./server/view/look", "./server/view", "./server"},
	{"./server/view/act", "./server/view", "./server"},
	{"./client/fence", "./client"},
	{"./client/zk", "./client"},
	{"./client/internal/session", "./client/internal/hold", "./client/internal/take", "./client"},
	{"./client/internal/hold", "./client/internal/take", "./client"},
	{"./client/internal/take", "./client"},
	{"./client/internal/inspect", "./client", "./cmd/zlock"},
	{"./client", "./cmd/zlock"},
	{"./cmd/zlock"},
	{"./cmd/zlock/internal/call", "./cmd/zlock"},
	{"./cmd/zlock/internal/connect", "./cmd/zlock"},
	{"./cmd/zlock/internal/ticket", "./cmd/zlock"},
	{"./cmd/zlock/internal/run", "./cmd/zlock"},
	{"./cmd/zlock/internal/look", "./cmd/zlock"},
	{"./cmd/zlock/internal/node", "./cmd/zlock"},
	{"./cmd/zlock/internal/manage", "./cmd/zlock"},
	{"./cmd/zlock/internal/supervise", "./cmd/zlock"},
	{"./cmd/zlockd/internal/settings", "./cmd/zlockd/daemon"},
	{"./cmd/zlockd/internal/data", "./cmd/zlockd/daemon"},
	{"./cmd/zlockd/daemon"},
	{"./cmd/internal/cli", "./cmd/zlock", "./cmd/zlockd/daemon"},
}

// equivalents() returns the edits that no user could notice, with the reasons.
func equivalents(t *testing.T) map[string]string {
	b := must.Get(os.ReadFile("testdata/equivalent.tsv"))(t)
	judged := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if what, why, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && !strings.HasPrefix(line, "#") {
			judged[what] = why
		}
	}
	return judged
}

// TestRandomEditsAreNoticed plants random edits one at a time, and runs the tests of the package and of the
// packages that use it until one fails. It reports edits that no test notices, and does not fail.
func TestRandomEditsAreNoticed(t *testing.T) {
	if *randomFlag == 0 {
		t.Skip("takes hours: make mutants-random")
	}
	root := must.Get(filepath.Abs("../.."))(t)
	judged := equivalents(t)
	wanted := regexp.MustCompile(*pkgFlag)
	for _, layer := range layers {
		if !wanted.MatchString(layer[0]) {
			continue
		}
		t.Run(layer[0], func(t *testing.T) {
			all := must.Get(spots(root, layer[0]))(t)
			rng := rand.New(rand.NewPCG(*seedFlag, uint64(len(layer[0]))))
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			own, above, late, equal := 0, 0, 0, 0
			var unnoticed []string
			for _, s := range all {
				if own+above+late+len(unnoticed) == *randomFlag {
					break
				}
				if judged[s.String()] != "" {
					equal++
					continue
				}
				began := time.Now()
				by, why, err := try(root, s, layer)
				took := time.Since(began).Round(time.Second)
				switch {
				case errors.Is(err, errDoesNotBuild):
				case errors.Is(err, errTimedOut):
					late++
					t.Logf("TIMED OUT %s:%d %s → %s, %v (%v)", s.file, s.line, s, oneLine(s.is), err, took)
				case err != nil:
					t.Fatal(err)
				case by == "":
					unnoticed = append(unnoticed, s.String())
					t.Logf("UNNOTICED %s:%d %s → %s (%v)", s.file, s.line, s, oneLine(s.is), took)
				case by == layer[0]:
					own++
					t.Logf("noticed %s:%d %s, by %s (%v)", s.file, s.line, s, why, took)
				default:
					above++
					t.Logf("noticed above %s:%d %s, by %s %s (%v)", s.file, s.line, s, by, why, took)
				}
			}
			t.Logf("| `%s` | %d | %d | %d | %d timed out | %d | seed %d; %d that change nothing left out", layer[0],
				own+above+late+len(unnoticed), own, above, late, len(unnoticed), *seedFlag, equal)
		})
	}
}

var (
	errDoesNotBuild = errors.New("does not build")
	// A run that took too long shows nothing: the edit may block it, or the machine is busy.
	errTimedOut = errors.New("timed out")
)

var timedOut = regexp.MustCompile(`(?m)^panic: test timed out after `)

// unfinished() returns errTimedOut if a run ended for lack of time, before a test failed.
func unfinished(ctx context.Context, out []byte, err error) error {
	if err != nil && !bytes.Contains(out, []byte("--- FAIL: ")) && (ctx.Err() != nil || timedOut.Match(out)) {
		return errTimedOut
	}
	return nil
}

// try() plants one edit. It returns the package whose tests notice it, and the name of the test.
func try(root string, s spot, pkgs []string) (by, why string, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	list, err := s.overlay(root, dir)
	if err != nil {
		return "", "", err
	}
	// The edit is also in programs that the tests build. TMPDIR is `dir`, so what these programs leave behind is
	// removed with `dir`.
	env := append(os.Environ(), "GOFLAGS=-overlay="+list, "TMPDIR="+dir, "GOMAXPROCS=2")
	run := func(in string, limit time.Duration, name string, args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = in, env
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.CombinedOutput()
		if late := unfinished(ctx, out, err); late != nil {
			err = fmt.Errorf("%w: %s %s", late, filepath.Base(name), strings.Join(args, " "))
		}
		return out, err
	}
	// noticed() returns the package and the test that a failed run names.
	noticed := func(pkg string, out []byte, err error) (string, string, error) {
		if errors.Is(err, errTimedOut) {
			return "", "", err
		}
		return pkg, failing(out), nil
	}
	edited := filepath.Join(root, filepath.Dir(s.file)) // the package may be in another module
	if out, err := run(edited, 5*time.Minute, "go", "build", "."); errors.Is(err, errTimedOut) {
		return "", "", err
	} else if err != nil {
		return "", "", fmt.Errorf("%w: %s", errDoesNotBuild, out)
	}
	for _, pkg := range pkgs {
		binary := filepath.Join(dir, filepath.Base(pkg)+".test")
		in := filepath.Join(root, pkg)
		if out, err := run(in, 5*time.Minute, "go", "test", "-c", "-vet=off", "-o", binary, "."); err != nil {
			return noticed(pkg, out, err)
		}
		tests := func(only, limit string) ([]byte, error) {
			return run(in, 6*time.Minute, binary, "-test.short", "-test.failfast",
				"-test.parallel=8", "-test.timeout="+limit, "-test.run="+only)
		}
		near, err := s.near(root, pkg)
		if err != nil {
			return "", "", err
		}
		if near != "" {
			if out, err := tests(near, "90s"); err != nil {
				return noticed(pkg, out, err)
			}
		}
		if out, err := tests("", "4m"); err != nil {
			return noticed(pkg, out, err)
		}
	}
	return "", "", nil
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// near() returns a pattern for the tests that most likely notice the edit: the tests in the matching test
// file, and the tests in files that call the edited function, if these are few. It returns "" if there is no
// such test. These tests run first, because all tests of some packages take a minute.
func (s spot) near(root, pkg string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return "", err
	}
	own := strings.TrimSuffix(filepath.Base(s.file), ".go") + "_test.go"
	calls := regexp.MustCompile(`\b` + s.fn + `\(`)
	var beside, calling []string
	callers := 0
	for _, path := range files {
		src, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		var names []string
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			if name := string(m[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
		if filepath.Base(path) == own {
			beside = names
		} else if calls.Match(src) {
			calling = append(calling, names...)
			callers++
		}
	}
	if callers <= 3 {
		beside = append(beside, calling...)
	}
	if len(beside) == 0 {
		return "", nil
	}
	return "^(" + strings.Join(beside, "|") + ")$", nil
}

// failing() returns the first test that fails. If no test fails, it returns what else went wrong.
func failing(out []byte) string {
	if m := regexp.MustCompile(`--- FAIL: (\S+)`).FindSubmatch(out); m != nil {
		return string(m[1])
	}
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte("panic:")) || bytes.HasPrefix(line, []byte("fatal error:")) {
			return oneLine(string(line))
		}
	}
	return oneLine(string(out))
}

// overlay() writes the edited file into `dir`, and the list for the go command.
func (s spot) overlay(root, dir string) (string, error) {
	path := filepath.Join(root, s.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if string(src[s.from:s.to]) != s.was {
		return "", fmt.Errorf("%s has changed", s.file)
	}
	edited := filepath.Join(dir, "edited.go")
	if err := os.WriteFile(edited, []byte(string(src[:s.from])+s.is+string(src[s.to:])), 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: edited}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, b, 0o600)
}

func TestRunThatTimesOutShowsNothing(t *testing.T) {
	failed, over := errors.New("exit status 2"), "panic: test timed out after 4m0s\nrunning tests:\n\tTestA (3m59s)\n"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		out  string
		err  error
		want error
	}{
		{"passes", t.Context(), "PASS\n", nil, nil},
		{"fails", t.Context(), "--- FAIL: TestA (0.00s)\n", failed, nil},
		{"panics", t.Context(), "panic: runtime error\n", failed, nil},
		{"too long for the test binary", t.Context(), over, failed, errTimedOut},
		{"too long for us", ended, "", failed, errTimedOut},
		{"fails and hangs", ended, "--- FAIL: TestA (0.00s)\n" + over, failed, nil},
	} {
		expect.Equal(t, unfinished(c.ctx, []byte(c.out), c.err), c.want, "%s", c.name)
	}
}

func TestSpotsAreFound(t *testing.T) {
	const src = `package p

func f(a, b int) (int, error) {
	if a < b {
		return 0, errSmall
	}
	for a > 0 && b > 0 {
		a--
		log.Info("less")
		b = a
		g(func() error { return h() })
	}
	c := a
	return c, nil
}
`
	list := must.Get(spotsIn("p.go", []byte(src)))(t)
	var got []string
	for _, s := range list {
		expect.Equal(t, src[s.from:s.to], s.was, "%v is not at %d", s, s.from)
		got = append(got, fmt.Sprintf("%d %s: %s → %s", s.line, s.kind, oneLine(s.was), oneLine(s.is)))
	}
	want := []string{
		"4 turned round: a < b → !(a < b)",
		"4 compared otherwise: a < b → a <= b",
		"5 error as nil: errSmall → nil",
		"7 turned round: a > 0 && b > 0 → !(a > 0 && b > 0)",
		"7 compared otherwise: a > 0 && b > 0 → a > 0 || b > 0",
		"7 compared otherwise: a > 0 → a >= 0",
		"7 compared otherwise: b > 0 → b >= 0",
		"8 dropped: a-- → ",
		"10 dropped: b = a → ",
		"11 dropped: g(func() error { return h() }) → ",
		"11 error as nil: h() → nil",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("found:\n%s\nwant:\n%s", g, w)
	}
}

// Each edit in testdata/equivalent.tsv can still be made. Otherwise its line there is out of date.
func TestJudgedEditsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("testdata/equivalent.tsv may be out of date for a while: make test-all")
	}
	root := must.Get(filepath.Abs("../.."))(t)
	exist := map[string]bool{}
	for _, layer := range layers {
		list := must.Get(spots(root, layer[0]))(t)
		if len(list) == 0 {
			t.Errorf("no edit can be made in %s", layer[0])
		}
		for _, s := range list {
			exist[s.String()] = true
		}
	}
	for what := range equivalents(t) {
		expect.That(t, exist[what], "testdata/equivalent.tsv lists an edit that cannot be made: %s", what)
	}
}
