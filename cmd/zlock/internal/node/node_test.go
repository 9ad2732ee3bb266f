package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	gosync "sync"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// screen collects what a shell writes.
type screen struct {
	mu   gosync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// take() returns the text since the last call.
func (s *screen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

func newShell(t *testing.T) (s *Shell, out, errs *screen) {
	t.Helper()
	c := must.Get(zk.Dial(t.Context(), zlocktest.Start(t).Addr, zk.Options{}))(t)
	t.Cleanup(func() { c.Close(t.Context()) })
	out, errs = &screen{}, &screen{}
	return &Shell{Conn: c, In: strings.NewReader(""), Out: out, Err: errs, Format: call.Table}, out, errs
}

// zkCliSays returns the lines and the events of a recorded zkCli for one command. It masks what depends on
// the server's clock and counters.
func zkCliSays(lines []string) (said []string, events []string) {
	zxid := regexp.MustCompile(`^([cmp]Zxid) = 0x[1-9a-f][0-9a-f]*$`)
	date := regexp.MustCompile(`^([cm]time) = .*`)
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" && i+3 < len(lines) && lines[i+1] == "WATCHER::" {
			events = append(events, lines[i+3])
			i += 3
			continue
		}
		line := zxid.ReplaceAllString(lines[i], "$1 = <zxid>")
		said = append(said, date.ReplaceAllString(line, "$1 = <time>"))
	}
	return said, events
}

// exception names a command by its beginning, and the reason to leave it out.
type exception struct{ cmd, why string }

// `left` lists the steps of the transcript that this shell lacks or answers differently, with the reasons.
var left = []exception{
	{"(start)", "it greets nobody"},
	{"version", "it has its own"},
	{"create -t 10000 /demo/ttl", "nodes with a TTL are on by default"},
	{"whoami", "the identities are a set; TestVerbs asks"},
	{"history", "its numbers begin at 0"},
	{"config", "not taken"}, {"reconfig", "not taken"},
	{"setquota", "not taken"}, {"listquota", "not taken"}, {"delquota", "not taken"},
	{"printwatches", "not taken"}, {"rmr", "not taken"}, {"bogus", "the message has no usage text before it"},
	{"ls -R /zookeeper", "no quota was made"}, {"ls /zookeeper", "no quota was made"},
	{"get /zookeeper/config", "the server's own"},
	{"delete /zookeeper", "the last lines are about a session's end"},
}

// TestShellSaysWhatZkCliSays replays the transcript of a real zkCli on a real ZooKeeper, line by line.
func TestShellSaysWhatZkCliSays(t *testing.T) {
	s, out, errs := newShell(t)
	text := string(must.Get(os.ReadFile("../../../../test/stock/testdata/zkcli/fresh.txt"))(t))
	compared := 0
	for _, step := range strings.Split(text, "\n>>> ")[1:] {
		lines := strings.Split(strings.TrimSuffix(step, "\n"), "\n")
		cmd := lines[0]
		var wantOut, wantErr []string
		for _, l := range lines[1:] {
			text := strings.TrimPrefix(l[min(4, len(l)):], " ")
			switch {
			case strings.HasPrefix(l, "out|"):
				wantOut = append(wantOut, text)
			case strings.HasPrefix(l, "err|"):
				wantErr = append(wantErr, text)
			}
		}
		if strings.HasPrefix(cmd, "redo") { // from here on the transcript is about connect and close
			break
		}
		if slices.ContainsFunc(left, func(d exception) bool { return strings.HasPrefix(cmd, d.cmd) }) {
			continue
		}
		s.Line(t.Context(), cmd)
		said, events := zkCliSays(wantOut)
		got := ""
		// The events may come before or after the answer, so wait for them.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			got += out.take()
			if strings.Count(got, "WATCHER::") >= len(events) || time.Now().After(end) {
				break
			}
		}
		var gotLines []string
		if got != "" {
			gotLines = strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		}
		gotSaid, gotEvents := zkCliSays(gotLines)
		expect.Equal(t, fmt.Sprintf("%q", gotSaid), fmt.Sprintf("%q", said), "%s: stdout is", cmd)
		expect.Equal(t, fmt.Sprintf("%q", gotEvents), fmt.Sprintf("%q", events), "%s: events are", cmd)
		expect.Equal(t, strings.TrimSuffix(errs.take(), "\n"), strings.Join(wantErr, "\n"),
			"%s: stderr is", cmd)
		compared++
	}
	expect.That(t, compared >= 60, "only %d verbs were compared", compared)
}

// The test runs verbs in each format, also verbs that zkCli does not have.
func TestVerbs(t *testing.T) {
	s, out, errs := newShell(t)
	file := filepath.Join(t.TempDir(), "data")
	must.OK(t, os.WriteFile(file, []byte("of a file"), 0o600))
	for _, c := range []struct{ format, line, out, err string }{
		{call.Table, "create /a 'x  y'", "", "Created /a\n"},
		{call.Plain, "create -s /a/n-", "/a/n-0000000000\n", ""},
		{call.JSON, "create -e /a/e z", `{"v":1,"path":"/a/e"}` + "\n", ""},
		{call.Plain, "ls /a", "e\nn-0000000000\n", ""},
		{call.JSON, "ls /a", `{"v":1,"path":"/a","names":["e","n-0000000000"]}` + "\n", ""},
		{call.Plain, "get /a", "x  y\n", ""},
		{call.Plain, "set -f " + file + " /a", "", ""},
		{call.Plain, "get -f - /a", "of a file", ""},
		{call.Plain, "set /a", "", "data is missing: set path data, or set -f FILE path\n"},
		{call.Plain, "tree /", "/\n├── a\n│   ├── e\n│   └── n-0000000000\n" +
			"└── zookeeper\n    ├── config\n    └── quota\n", ""},
		{call.Plain, "find / n-*", "/a/n-0000000000\n", ""},
		{call.JSON, "find / /a", `{"v":1,"path":"/a"}` + "\n", ""},
		{call.Plain, `create "/a/x\\\u202ey"`, "/a/x\\u202ey\n", ""},
		{call.Plain, "rm /a/xu202ey", "", "Node does not exist: /a/xu202ey\n"},
		{call.Plain, "getAcl /a", "world:anyone:cdrwa\n", ""},
		{call.JSON, "getAcl /a", `{"v":1,"path":"/a","acl":["world:anyone:cdrwa"]}` + "\n", ""},
		{call.Plain, "setAcl /a world:anyone", "", "world:anyone does not have the form scheme:id:perm\n"},
		{call.Plain, "setquota -n 5 /a", "",
			"Command not found: setquota is not supported here: write /zookeeper/quota with zkCli.sh of a " +
				"ZooKeeper\n"},
		{call.Plain, "rm /a", "", "Node not empty: /a\n"},
		{call.Plain, "rm -r /a", "", ""},
		{call.Plain, "get /a", "", "Node does not exist: /a\n"},
		{call.Plain, "get 'x", "", "the quote ' has no end\n"},
	} {
		t.Run(c.format+" "+c.line, func(t *testing.T) {
			s.Format = c.format
			s.Line(t.Context(), c.line)
			expect.Equal(t, out.take(), c.out, "stdout is")
			expect.Equal(t, errs.take(), c.err, "stderr is")
		})
	}
}

// The names and the data of other clients cannot control a terminal.
func TestNamesAreShownSafely(t *testing.T) {
	s, out, errs := newShell(t)
	s.Terminal = true
	const name = "/red\u202e\u2066name"
	must.Get(s.Conn.Create(t.Context(), zk.Create{Path: name, Data: []byte("a\x1b[2J  b\nc")}))(t)
	for _, words := range [][]string{{"ls", "/"}, {"ls", "-R", "/"}, {"tree", "/"}, {"find", "/", "red*"},
		{"get", name}, {"create", name + "/\u202e"}} {
		must.OK(t, s.Do(t.Context(), words))
		text := out.take() + errs.take()
		expect.That(t, !strings.ContainsAny(text, "\u202e\u2066\x1b"), "%v writes %q", words, text)
		expect.That(t, strings.Contains(text, "⟨U+"), "%v writes %q", words, text)
	}
}

// A command that only reads reports a node that it may not read, continues, and fails at the end. A command
// that changes nodes ends at such a node.
func TestWalksSayWhatTheyMayNotRead(t *testing.T) {
	s, out, errs := newShell(t)
	for _, p := range []string{"/a", "/a/b", "/a/b/x", "/a/c", "/a/d"} {
		must.Get(s.Conn.Create(t.Context(), zk.Create{Path: p}))(t)
	}
	must.Get(s.Conn.SetACL(t.Context(), "/a/b", zk.WorldACL(zk.PermAll&^zk.PermRead), -1))(t)
	const no, end = "Insufficient permission : /a/b\n",
		"1 nodes below /a may not be read: the nodes below them are left out\n"
	node := func(p string) string { return `{"v":1,"path":"` + p + `"}` + "\n" }
	const left = `{"v":1,"path":"/a/b","error":"Insufficient permission"}` + "\n"
	exported := func(p string) string { return `{"path":"` + p + `","acl":["world:anyone:cdrwa"]}` + "\n" }
	for _, c := range []struct{ format, line, out, err string }{
		{call.Plain, "ls -R /a", "/a\n/a/b\n/a/c\n/a/d\n", no + end},
		{call.JSON, "ls -R /a", node("/a") + node("/a/b") + left + node("/a/c") + node("/a/d"), no + end},
		{call.Plain, "find /a c", "/a/c\n", no + end},
		{call.JSON, "find /a c", left + node("/a/c"), no + end},
		{call.Plain, "tree /a", "/a\n├── b\n├── c\n└── d\n", no + end},
		{call.JSON, "tree /a", node("/a") + node("/a/b") + left + node("/a/c") + node("/a/d"), no + end},
		{call.JSON, "export /a", exported("") + exported("c") + exported("d"), no + end},
		{call.Plain, "ls -R /a/b", "", no},
		{call.Plain, "tree /a/b", "/a/b\n", no},
		{call.Plain, "rm -r /a", "", no},
		{call.Plain, "setAcl -R /a world:anyone:cdrwa", "", no},
		{call.Plain, "ls /a", "b\nc\nd\n", ""},
	} {
		t.Run(c.format+" "+c.line, func(t *testing.T) {
			s.Format = c.format
			s.Line(t.Context(), c.line)
			expect.Equal(t, out.take(), c.out, "stdout is")
			expect.Equal(t, errs.take(), c.err, "stderr is")
		})
	}
}

// The removal of a node and all nodes below it asks first, and does nothing without a yes.
func TestRemovalAsks(t *testing.T) {
	for _, c := range []struct {
		name, line, answer string
		terminal, removed  bool
	}{
		{"yes", "rm -r /a", "y\n", true, true},
		{"no", "rm -r /a", "n\n", true, false},
		{"no answer", "deleteall /a", "", true, false},
		{"not asked for", "deleteall -y /a", "", true, true},
		{"script", "deleteall /a", "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, errs := newShell(t)
			s.In, s.Terminal = strings.NewReader(c.answer), c.terminal
			for _, p := range []string{"/a", "/a/b", "/a/b/c", "/a/d"} {
				must.Get(s.Conn.Create(t.Context(), zk.Create{Path: p}))(t)
			}
			s.Line(t.Context(), c.line)
			st := must.Get(s.Conn.Exists(t.Context(), "/a"))(t)
			expect.Equal(t, st == nil, c.removed, "the nodes are gone")
			asks := c.terminal && !strings.Contains(c.line, "-y")
			expect.Equal(t, strings.Contains(errs.take(), "the 3 nodes below"), asks, "it asks")
		})
	}
}

// `import` restores what `export` has written: data of any bytes, and ACLs.
func TestExportAndImport(t *testing.T) {
	s, out, errs := newShell(t)
	data := map[string][]byte{"/a": []byte("<text>"), "/a/b": {0xff, 0, 1}, "/a/b/c": nil, "/a/d": {}}
	for _, p := range []string{"/a", "/a/b", "/a/b/c", "/a/d"} {
		must.Get(s.Conn.Create(t.Context(), zk.Create{Path: p, Data: data[p]}))(t)
	}
	must.Get(s.Conn.SetACL(t.Context(), "/a/d", zk.WorldACL(zk.PermAll&^zk.PermCreate), -1))(t)
	must.Get(s.Conn.Create(t.Context(), zk.Create{Path: "/a/e", Mode: zk.Ephemeral}))(t)
	must.OK(t, s.Do(t.Context(), []string{"export", "/a"}))
	text := out.take()
	expect.Has(t, errs.take(), "1 nodes are left out", "export says")
	s.In = strings.NewReader(text)
	must.OK(t, s.Do(t.Context(), []string{"import", "/x"}))
	expect.Equal(t, errs.take(), "4 nodes made, 0 changed\n", "import says")
	must.OK(t, s.Do(t.Context(), []string{"export", "/x"}))
	expect.Equal(t, out.take(), text, "the export of what was imported is")
	s.lines, s.In = nil, strings.NewReader(text)
	expect.Fails(t, s.Do(t.Context(), []string{"import", "/x"}), "import replaces nodes without --force")
	s.lines, s.In = nil, strings.NewReader(text)
	must.OK(t, s.Do(t.Context(), []string{"import", "--force", "/x"}))
	expect.Equal(t, errs.take(), "0 nodes made, 4 changed\n", "import says")
}

// An export with a container and with ids that contain commas can be imported. The path in a line cannot lead
// out of the node that is the operand of `import`. A line without an ACL keeps the node's ACL.
func TestImportOfUnusualLines(t *testing.T) {
	s, out, errs := newShell(t)
	imports := func(text string, words ...string) error {
		s.lines, s.In = nil, strings.NewReader(text)
		return s.Do(t.Context(), append([]string{"import"}, words...))
	}
	ctx := t.Context()
	own := append(zk.DigestACL(zk.PermRead, "CN=ann,O=works", "secret"), zk.WorldACL(zk.PermAll)...)
	must.Get(s.Conn.Create(ctx, zk.Create{Path: "/a", ACL: own}))(t)
	must.Get(s.Conn.Create(ctx, zk.Create{Path: "/a/box", Mode: zk.Container}))(t)
	must.Get(s.Conn.Create(ctx, zk.Create{Path: "/a/box/n", Data: []byte("n")}))(t)
	must.OK(t, s.Do(ctx, []string{"export", "/a"}))
	must.OK(t, imports(out.take(), "/x"))
	list, _, err := s.Conn.GetACL(ctx, "/x")
	must.OK(t, err)
	expect.List(t, list, own)
	n, err := s.Conn.Get(ctx, "/x/box/n")
	expect.OK(t, err)
	expect.Equal(t, string(n.Data), "n")

	expect.Fails(t, imports(`{"path":"../out","data":"x"}`, "--force", "/x"))
	st, err := s.Conn.Exists(ctx, "/out")
	expect.OK(t, err)
	expect.That(t, st == nil, "an import has made a node beside its operand: %v", err)
	expect.OK(t, imports(`{"path":"","data":"new"}`, "--force", "/x"))
	list, _, err = s.Conn.GetACL(ctx, "/x")
	expect.OK(t, err)
	expect.List(t, list, own)
	errs.take()
}

// The Tab key adds to the last word, a verb or a path, the letters that all choices have in common.
func TestCompletion(t *testing.T) {
	s, _, _ := newShell(t)
	for _, p := range []string{"/lock", "/lock-a", "/other", "/d", "/d/é", "/d/è"} {
		must.Get(s.Conn.Create(t.Context(), zk.Create{Path: p}))(t)
	}
	for _, c := range []struct {
		line, done string
		choices    int
	}{
		{"ge", "get", 4}, {"tr", "tree ", 1}, {"ls /l", "ls /lock", 2}, {"get -s /o", "get -s /other", 1},
		{"ls /d/", "ls /d/", 2}, {"ls /none", "ls /none", 0}, {"xyz", "xyz", 0},
	} {
		done, choices := s.complete(t.Context(), c.line)
		expect.Equal(t, done, c.done, "%q becomes", c.line)
		expect.Equal(t, len(choices), c.choices, "%q has choices", c.line)
	}
}

// The type full is a writer to a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose answer cannot be written fails. Otherwise a script would continue with an empty file.
func TestAnswersThatCannotBeWrittenAreErrors(t *testing.T) {
	s, _, _ := newShell(t)
	s.Out = full{}
	must.OK(t, s.Do(t.Context(), []string{"create", "/a", "data"}))
	verbs := []string{"get /a", "ls /", "ls -R /", "stat /a", "tree /", "getAcl /a", "export /a", "find / a",
		"whoami", "get -f - /a"}
	for _, format := range []string{call.Table, call.Plain, call.JSON} {
		s.Format = format
		for _, words := range verbs {
			expect.Is(t, s.Do(t.Context(), strings.Fields(words)), syscall.ENOSPC, "%s: %s", format, words)
		}
	}
}
