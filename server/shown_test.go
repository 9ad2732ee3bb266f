package server

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// secret is a part of each name that world:anyone may not list, and of no other name.
const secret = "geheim"

// shutDir makes a directory that world:anyone may not read. Below it are the things that a server's views
// show: two locks that form a deadlock, a semaphore, a lone node, watches, and nodes of a session that has
// ended.
func shutDir(t *testing.T, i *Instance, dir string) (live, ended string) {
	t.Helper()
	open := func() *wire.Conn {
		c := wire.New(must.Get(net.Dial("tcp", i.ClientAddr()))(t))
		t.Cleanup(func() { c.Close() })
		must.OK(t, c.Connect(wire.NewSession(600_000))) // a long timeout, because the connection sends no pings
		return c
	}
	a, b, gone := open(), open(), open()
	if dir != "/" {
		create(t, a, dir, 0)
	}
	unread := jute.ACL{Perms: jute.PermAll &^ jute.PermRead, ID: jute.WorldAnyone[0].ID}
	must.Get(a.SetACL(dir, []jute.ACL{unread}, -1))(t)
	dir = strings.TrimSuffix(dir, "/") + "/" + secret
	for _, name := range []string{"-x", "-y", "-sem", "-sem/locks", "-sem/leases"} {
		create(t, a, dir+name, 0)
	}
	contend := func(c *wire.Conn, path string) { create(t, c, path+"/lock-", jute.FlagEphemeralSequential) }
	contend(a, dir+"-x")
	contend(b, dir+"-y")
	contend(b, dir+"-x")
	contend(a, dir+"-y")
	create(t, a, dir+"-sem/leases/lease-", jute.FlagEphemeralSequential)
	create(t, a, dir+"-lone", jute.FlagEphemeral)
	create(t, gone, dir+"-gone", jute.FlagEphemeral)
	for _, path := range []string{dir + "-x", dir + "-none/deep"} {
		_, _ = b.Exists(path, true)
	}
	ended = report.Hex(gone.Session.ID)
	must.OK(t, gone.CloseSession())
	return report.Hex(a.Session.ID), ended
}

// expanded() returns the paths that match a pattern of the admin port: each wildcard is replaced by each
// value that it may have. A wildcard that expanded() does not know fails the test.
func expanded(t *testing.T, pattern, page string, commands, known []string) (paths []string) {
	t.Helper()
	before, wild, found := strings.Cut(pattern, "{")
	switch {
	case pattern == "/{$}":
		for _, tab := range append(regexp.MustCompile(`tab=[a-z]+`).FindAllString(page, -1), "tab=session") {
			paths = append(paths, "/?"+tab)
			for _, name := range known {
				paths = append(paths, "/?"+tab+"&id="+name+"&path="+url.QueryEscape("/"+name))
			}
		}
	case !found:
		paths = []string{pattern, pattern + "?by=watches", pattern + "?limit=100", pattern + "?prefix=/"}
	case before == "/commands/":
		paths = commands
	case wild == "name}" || wild == "name...}":
		for _, name := range known {
			paths = append(paths, before+name, before+name+"?data")
		}
	default:
		t.Fatalf("fill in the wildcard of %s here", pattern)
	}
	return paths
}

// The admin port, the commands and the four-letter words show no name below a node that world:anyone may not
// read, unless the caller has the super user's password. The test asks for each pattern that the server has,
// so new patterns are included.
func TestNamesAreShownByOneRule(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"a directory": "/shut", "the root": "/"} {
		t.Run(name, func(t *testing.T) { namesBelow(t, dir) })
	}
}

func namesBelow(t *testing.T, dir string) {
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", SuperDigest: superDigest, FourLetterWords: "*",
		MaxSessionTimeout: 10 * time.Minute})
	live, ended := shutDir(t, i, dir)
	base := "http://" + i.AdminAddr()
	ask := func(path, authorization string) string {
		r := must.Get(http.NewRequest(http.MethodGet, base+path, nil))(t)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := must.Get(http.DefaultClient.Do(r))(t)
		defer w.Body.Close()
		return string(must.Get(io.ReadAll(w.Body))(t))
	}
	var commands []string
	for _, m := range regexp.MustCompile(`/commands/[a-z_]+`).FindAllString(ask("/commands", ""), -1) {
		if m != "/commands/snapshot" && m != "/commands/restore" {
			commands = append(commands, m)
		}
	}
	known := []string{"", strings.TrimPrefix(dir, "/"), live, ended}
	page := ask("/", "")
	show := map[string]bool{}
	for pattern := range i.Admin.Routes() {
		for _, path := range expanded(t, pattern, page, slices.Compact(commands), known) {
			text := ask(path, "")
			expect.That(t, !strings.Contains(text, secret), "%s tells everyone: %.2000s", path, text)
			if strings.Contains(ask(path, "digest super:test"), secret) {
				show[strings.SplitN(path, "&", 2)[0]] = true
				text = ask(path, "digest alice:guess")
				expect.That(t, !strings.Contains(text, secret), "%s tells alice", path)
			}
		}
	}
	for _, path := range []string{"/commands/dump", "/commands/watches", "/commands/watches_by_path", "/locks",
		"/wait-graph", "/sessions/" + live, "/sessions/ended", "/top?by=watches", "/tree" + dir, "/?tab=locks",
		"/?tab=graph", "/?tab=session", "/?tab=ended", "/?tab=tree"} {
		expect.That(t, show[path], "%s does not show the names to the super user; these do: %v", path, show)
	}
	for _, word := range admin.Words() {
		c := must.Get(net.Dial("tcp", i.ClientAddr()))(t)
		must.OK(t, c.SetDeadline(time.Now().Add(time.Minute)))
		must.Get(io.WriteString(c, word+"\x00\x00\x00\x00\x00\x00\x00\x00"))(t)
		text, _ := io.ReadAll(c)
		c.Close()
		expect.That(t, !strings.Contains(string(text), secret), "%s tells everyone: %.2000s", word, text)
		expect.Equal(t, strings.Contains(string(text), "that world:anyone may not list)"),
			word == "dump" || word == "wchc" || word == "wchp", "%s: %.2000s", word, text)
	}
}
