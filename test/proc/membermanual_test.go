package proc

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// blocks are the shell examples below a heading of a document.
func blocks(t *testing.T, doc, heading string) (list []string) {
	t.Helper()
	b := must.Get(os.ReadFile(doc))(t)
	_, text, ok := strings.Cut(string(b), "\n## "+heading+"\n")
	must.That(t, ok, "%s has no heading %q", doc, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// The manual is followed to the letter; only its addresses and directories are
// those of this test, and on loopback there is no TLS.
func TestTheManualOfMembersCanBeFollowed(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	steps := blocks(t, "../../docs/operations.md", "Members")
	must.Equal(t, len(steps), 5,
		"%d examples; this test knows of 5: list, start, add, remove, a lost disk", len(steps))
	fourth, lost := e.Servers[3], e.Servers[2]
	var names []string
	for i, s := range e.Servers {
		ip := "10.0.0." + string(rune('1'+i))
		names = append(names, ip+":2888", s.Peer, ip+":2181", s.Client)
	}
	words := strings.NewReplacer(append(names, "/var/lib/zlockd", fourth.Data())...)
	tls := regexp.MustCompile(` --peer-tls-\w+ \S+`)
	dir := t.TempDir()
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", words.Replace(script))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cluster.Zlock(t))+":"+os.Getenv("PATH"), "ZLOCK_ADMIN="+
			e.Servers[0].Admin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	expect.Equal(t, strings.Count(sh(steps[0]), "\n"), 4, "the list")

	zlockd := must.Get(cluster.Binary())(t)
	command := words.Replace(tls.ReplaceAllString(strings.ReplaceAll(steps[1], "\\\n", " "), ""))
	fourth.Args = append([]string{zlockd}, strings.Fields(command)[1:]...)
	// not given in the manual: each machine has its own
	fourth.Args = append(fourth.Args, "--admin-addr", fourth.Admin)
	must.OK(t, fourth.Spawn())
	must.Await(t, "the new server says what it waits for", 10*time.Second, func() bool {
		return strings.Contains(fourth.LogTail(), "zlock member add 4 "+fourth.Peer)
	})
	sh(steps[2])
	must.OK(t, fourth.WaitReady())
	expect.Equal(t, e.roles(fourth), "1 voter, 2 voter, 3 voter, 4 voter")

	second := e.Servers[1]
	sh(steps[3])
	must.Await(t, "the removed server serves no more", 5*time.Second, func() bool { return second.Mode() == "" })
	must.Await(t, "it says why", 5*time.Second, func() bool {
		return strings.Contains(ready(second), "this server was removed from the cluster")
	})
	second.Stop()

	lost.Kill()
	must.OK(t, os.RemoveAll(lost.Data()))
	must.OK(t, lost.Spawn())
	must.Await(t, "the emptied server waits", 10*time.Second, func() bool {
		return strings.Contains(lost.LogTail(), "this one is empty, so the server must not vote")
	})
	sh(steps[4])
	must.OK(t, lost.WaitReady())
	expect.Equal(t, e.roles(lost), "1 voter, 3 voter, 4 voter")
}

// ready is what a server answers to /ready.
func ready(s *cluster.Server) string {
	resp, err := http.Get("http://" + s.Admin + "/ready")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
