package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Whatever the tree holds, no answer of the admin port is longer than 50 MB. A shortened answer says so.
func TestNoAnswerOfTheAdminPortIsTooLong(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 60 MB of names")
	}
	i, c := start(t, Options{AdminAddr: "127.0.0.1:0", MaxFrame: 2 << 20})
	dir := "/" + strings.Repeat(`"`, 30_000)
	must.Get(c.Create(dir, []byte(strings.Repeat("\x00", 1<<20)), 0))(t)
	for n := range 1000 { // names of 60 kB each
		must.Get(c.Create(fmt.Sprintf("%s/%s%d", dir, strings.Repeat(`"`, 30_000), n), nil, jute.FlagEphemeral))(t)
	}
	base := "http://" + i.AdminAddr()
	paths := []string{"/", "/metrics", "/health", "/ready", "/members", "/commands"}
	for _, tab := range []string{"overview", "locks", "graph", "sessions", "ended", "tree", "clients"} {
		paths = append(paths, "/?tab="+tab)
	}
	paths = append(paths, "/locks", "/locks?limit=1000", "/wait-graph", "/sessions?limit=1000",
		"/sessions/ended?limit=1000", "/top?limit=1000", "/overview",
		"/tree/", "/tree?data", "/locks/none")
	_, list := get(t, base+"/commands")
	paths = append(paths, regexp.MustCompile(`/commands/[a-z_]+`).FindAllString(list, -1)...)
	for _, path := range paths {
		code, text := get(t, base+path)
		expect.That(t, len(text) <= 50_000_000, "%s: %d bytes", path, len(text))
		expect.That(t, code < 500, "%s: %d %.200s", path, code, text)
	}
	code, text := get(t, base+"/commands/dump")
	var dump struct {
		Truncated string
		Paths     map[string][]string `json:"session_id_to_ephemeral_paths"`
	}
	err := json.Unmarshal([]byte(text), &dump)
	if expect.OK(t, err) {
		expect.Equal(t, code, http.StatusOK, "dump: exit code")
		expect.Equal(t, dump.Truncated, "too many: 1000 ephemeral nodes, of which only some are shown",
			"dump: truncated")
	}
	for _, paths := range dump.Paths {
		expect.That(t, len(paths) >= 300 && len(paths) <= 800, "%d paths are shown", len(paths))
	}
}

// A client may watch a text that is not a path, or a very long path. Even then the server lists its watches
// quickly.
func TestListsOfWatchesThatAreOnNoPath(t *testing.T) {
	t.Parallel()
	i, c := start(t, Options{AdminAddr: "127.0.0.1:0"})
	for _, path := range []string{"foo", "foo/bar", "//", "/foo//", strings.Repeat("/x", 400_000)} {
		if _, err := c.Exists(path, true); err != jute.NoNode {
			t.Fatalf("%.10s: %v", path, err)
		}
	}
	listed := make(chan string, 1)
	go func() {
		_, text := get(t, "http://"+i.AdminAddr()+"/commands/watches")
		listed <- text
	}()
	select {
	case text := <-listed:
		for _, path := range []string{`"foo"`, `"foo/bar"`, `"//"`, `"/foo//"`, `"/x/x/`} {
			expect.That(t, strings.Contains(text, path), "%s is not in %.200s", path, text)
		}
	case <-time.After(time.Minute):
		panic("the list holds up the server")
	}
}

// A client cannot create a node with a NUL in its path, and the admin pages answer requests for such a path.
func TestNULInAName(t *testing.T) {
	t.Parallel()
	i, c := start(t, Options{AdminAddr: "127.0.0.1:0"})
	for _, path := range []string{"/a\x00b", "/\x00", "/a/\x00"} {
		for _, flags := range []int32{jute.FlagPersistent, jute.FlagEphemeralSequential, jute.FlagContainer} {
			if made, err := c.Create(path, nil, flags); err == nil {
				t.Errorf("%q was made as %q", path, made)
			}
		}
	}
	if _, err := c.Exists("/\x00", true); err != jute.BadArguments {
		t.Errorf("exists: %v", err)
	}
	_, _ = c.Exists("/w\x01<script>\u202e", true) // the server may refuse this watch
	for _, path := range []string{"/locks/a%00b", "/tree/a%00b", "/locks/%00", "/tree/%00"} {
		code, text := get(t, "http://"+i.AdminAddr()+path)
		expect.Equal(t, code, http.StatusNotFound, "%s: exit code", path)
		expect.That(t, json.Valid([]byte(text)), "%s: %d %q", path, code, text)
	}
	for _, path := range []string{"/top?by=watches", "/commands/watches", "/commands/watches_by_path",
		"/locks?prefix=/%00", "/locks?holder=%00", "/wait-graph"} {
		code, text := get(t, "http://"+i.AdminAddr()+path)
		expect.Equal(t, code, http.StatusOK, "%s: exit code", path)
		expect.That(t, json.Valid([]byte(text)), "%s: %d %q", path, code, text)
	}
	if code, text := get(t, "http://"+i.AdminAddr()+"/?tab=tree&path=/%00"); code != http.StatusNotFound &&
		code != http.StatusOK || strings.Contains(text, "<script>\u202e") {
		t.Errorf("page: %d %q", code, text)
	}
}
