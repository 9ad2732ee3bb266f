package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write what was told of locks into testdata/locks")

// lockForest has a line for each node: the number of the node's session, its path, and its data. In place of
// the number, 0 marks a lasting node, C a container, and H a node of session 1 that only session 1 may read.
// Session w only watches.
const lockForest = `
0 /ours {"zl":1}
1 /ours/_c_%A8-lock-0000000000 {"v":1,"host":"web-1","pid":11,"cmd":"nightly","user":"ops","reason":"books","task":"t1","held":true}
2 /ours/_c_%B8-lock-0000000001 {"v":1,"host":"web-2","pid":12,"revocable":true,"revoke":{"by":"ops","reason":"now"}}
3 /ours/_c_%C8-lock-0000000002 {"v":1,"host":"web-3","pid":13,"breakable":true,"maxHold":"5s","grace":"1s"}
0 /ours/notes text
1 /curator/_c_%A4-lock-0000000000 192.168.1.7
2 /curator/_c_%B4-lock-0000000001 __REVOKE__
3 /curator/_c_%C4-lock-0000000002
1 /bare/lock-0000000003
2 /bare/lock-0000000010
1 /wrapped/lock-2147483647
2 /wrapped/lock--2147483648
1 /gozk/_c_%a4-lock-0000000000
2 /gozk/_c_%b4-lock-0000000001
1 /rw/_c_%A4-__READ__0000000000
2 /rw/_c_%B4-__READ__0000000001
3 /rw/_c_%C4-__WRIT__0000000002
4 /rw/_c_%D4-__READ__0000000003
5 /rw/_c_%E4-__WRIT__0000000004
1 /rwours/_c_%A8-__WRIT__0000000000 {"v":1,"host":"web-1","pid":11}
1 /rwours/_c_%B8-__READ__0000000000 {"v":1,"host":"web-1","pid":11}
2 /rwours/_c_%C8-__READ__0000000001 {"v":1,"host":"web-2","pid":12}
1 /latch/_c_%A4-latch-0000000000 id-1
2 /latch/_c_%B4-latch-0000000001 id-2
1 /election/_c_%A8-lock-0000000000 10.0.0.1:80
2 /election/_c_%B8-lock-0000000001 10.0.0.2:80
1 /kazoo/%a4__lock__0000000000 one
2 /kazoo/%b4__lock__0000000001 two
3 /kazoo/%c4__lock__0000000002
1 /kazoorw/%a4__rlock__0000000000
2 /kazoorw/%b4__rlock__0000000001
3 /kazoorw/%c4__lock__0000000002
4 /kazoorw/%d4__rlock__0000000003
1 /guests/_c_%A8-lock-0000000000
2 /guests/%b4__lock__0000000001
3 /guests/_c_%C8-lock-0000000002
1 /mixed/_c_%A4-lock-0000000000
2 /mixed/%b4__lock__0000000001
3 /mixed/_c_%C4-lock-0000000002
1 /families/_c_%A4-lock-0000000000
2 /families/_c_%B4-latch-0000000001
1 /host/web1-R-0000000000
2 /host/web2~%b8-W-0000000001 {"v":1,"host":"web2","pid":2}
3 /host/web3-R-0000000002
1 /recipe/x-0x1000000000000001-0000000000
2 /recipe/x-72057594037927936-0000000001
0 /policy {"zl":1,"layout":"rw1","policy":"fair","maxWriterWait":"10s","gate":""}
1 /policy/h-%A8-R {"v":1,"host":"web-1","pid":11}
2 /policy/q-%B8-W-0000000001 {"v":1,"host":"web-2","pid":12}
3 /policy/q-%C8-R-0000000002 {"v":1,"host":"web-3","pid":13}
0 /policywriter {"zl":1,"layout":"rw1","policy":"writer","maxWriterWait":"10s","gate":"%B8","kind":"w"}
1 /policywriter/q-%B8-W-0000000000 {"v":1,"host":"web-1","pid":11}
1 /policywriter/h-%B8-W {"v":1,"host":"web-1","pid":11}
2 /policywriter/q-%C8-R-0000000001 {"v":1,"host":"web-2","pid":12}
3 /policywriter/q-%D8-W-0000000002 {"v":1,"host":"web-3","pid":13}
0 /policyreader {"zl":1,"layout":"rw1","policy":"reader","maxWriterWait":"10s","gate":""}
1 /policyreader/h-%A8-R
2 /policyreader/h-%B8-R
3 /policyreader/q-%C8-W-0000000004
0 /sem {"zl":1,"limit":2}
1 /sem/leases/_c_%A8-lease-0000000000 {"v":1,"host":"web-1","pid":11}
2 /sem/leases/_c_%B8-lease-0000000001 {"v":1,"host":"web-2","pid":12}
3 /sem/locks/_c_%C8-lock-0000000002 {"v":1,"host":"web-3","pid":13}
4 /sem/locks/_c_%D8-lock-0000000003 {"v":1,"host":"web-4","pid":14}
1 /semcurator/leases/_c_%A4-lease-0000000000
2 /semcurator/leases/_c_%B4-lease-0000000001
2 /semcurator/locks/_c_%C4-lock-0000000002
3 /semcurator/locks/_c_%D4-lock-0000000003
0 /semkazoo 2
1 /semkazoo/%a4 one
2 /semkazoo/%b4 two
3 /semkazoo-__lock__/%c4__lock__0000000000
4 /semkazoo-__lock__/%d4__lock__0000000001
0 /semempty {"zl":1,"limit":3}
1 /party/%a4__party__ one
2 /party/%b4__party__ two
1 /simple/lock {"v":1,"host":"web-1","pid":11}
w /simple/lock
1 /master 10.0.0.1
w /master
1 /tutorial/lock0000000017
2 /tutorial/lock0000000018
1 /manual/guid-n_0000000004
2 /manual/guid-n_0000000005
1 /textbook/read-0000000000
2 /textbook/write-0000000001
3 /textbook/read-0000000002
1 /jobs/job-0000000000
2 /jobs/job-0000000001
1 /watched/item-0000000000
w /watched/item-0000000000
w /watched/item-0000000001
0 /leftover/_c_%A8-lock-0000000000 {"v":1,"host":"gone","pid":9}
2 /leftover/_c_%B8-lock-0000000001 {"v":1,"host":"web-2","pid":12}
0 /delayed {"zl":1,"holder":"%A8"}
0 /plain/data some text
C /contained
C /contained/lock
1 /contained/lock/_c_%A8-lock-0000000000
0 /doublebarrier/ready
1 /doublebarrier/_c_%A8-member
2 /doublebarrier/_c_%B8-member
0 /barrier closed
1 /cycle/a/_c_%A4-lock-0000000000
2 /cycle/a/_c_%B4-lock-0000000001
2 /cycle/b/_c_%C4-lock-0000000000
1 /cycle/b/_c_%D4-lock-0000000001
1 /tasks/a/_c_%A8-lock-0000000000 {"v":1,"host":"web-1","pid":11,"task":"one"}
2 /tasks/a/_c_%B8-lock-0000000001 {"v":1,"host":"web-2","pid":12,"task":"two"}
2 /tasks/b/_c_%C8-lock-0000000000 {"v":1,"host":"web-2","pid":12,"task":"two"}
1 /tasks/b/_c_%D8-lock-0000000001 {"v":1,"host":"web-1","pid":11,"task":"one"}
1 /self/_c_%A8-lock-0000000000 {"v":1,"host":"web-1","pid":11,"task":"one"}
1 /self/_c_%B8-lock-0000000001 {"v":1,"host":"web-1","pid":11,"task":"one"}
0 /secret
H /secret/_c_%A8-lock-0000000000 {"v":1,"host":"web-1","pid":11}
2 /secret/_c_%B8-lock-0000000001
`

// ids() replaces %A8 by an id of version 8 with dashes, and %a4 by an id of version 4 without dashes. The
// letter chooses the id.
func ids(line string) string {
	return regexp.MustCompile(`%[A-Ea-e][48]`).ReplaceAllStringFunc(line, func(s string) string {
		letter := strings.ToLower(s[1:2])
		h := strings.Repeat(letter, 12) + s[2:] + strings.Repeat(letter, 3) + "8" + strings.Repeat(letter, 15)
		if s[1:2] == letter {
			return h
		}
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	})
}

// planted() makes the nodes of lockForest on a server of its own, and returns the paths of the locks.
func planted(t *testing.T) (env map[string]string, admin string, paths []string) {
	t.Helper()
	ctx := t.Context()
	i, err := zlockd.Start(ctx, zlockd.Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	t.Cleanup(func() { i.Close(context.Background()) })
	must.OK(t, i.Ready(ctx))
	conns := map[string]*zk.Conn{}
	for _, n := range []string{"0", "1", "2", "3", "4", "5", "w"} {
		c := must.Get(zk.Dial(ctx, i.ClientAddr(), zk.Options{Timeout: 40_000_000_000}))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		conns[n] = c
	}
	must.OK(t, conns["1"].AddAuth(ctx, zk.Auth{Scheme: "digest", Secret: []byte("me:secret")}))
	made := map[string]bool{"": true}
	last := time.Now().UnixMilli()
	for line := range strings.Lines(strings.TrimSpace(ids(lockForest))) {
		who, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, data, _ := strings.Cut(rest, " ")
		for at := 1; at < len(path); at++ {
			if path[at] == '/' && !made[path[:at]] {
				made[path[:at]] = true
				if _, err := conns["0"].Create(ctx, zk.Create{
					Path: path[:at], ACL: zk.WorldACL(zk.PermAll)}); err != nil {
					t.Fatal(path[:at], err)
				}
			}
		}
		made[path] = true
		op := zk.Create{Path: path, Data: []byte(data), ACL: zk.WorldACL(zk.PermAll), Mode: zk.Ephemeral}
		conn := conns[who]
		switch who {
		case "0":
			op.Mode = zk.Persistent
		case "C":
			op.Mode, conn = zk.Container, conns["0"]
		case "H":
			op.ACL, conn = zk.AuthACL(zk.PermAll), conns["1"]
		case "w":
			if _, _, err = conn.ExistsW(ctx, path); err != nil {
				t.Fatal(path, err)
			}
			continue
		}
		for time.Now().UnixMilli() <= last {
			time.Sleep(time.Millisecond) // so that the nodes differ in age
		}
		must.OK(t, expect.Err(conn.Create(ctx, op)), "%v", path)
		last = time.Now().UnixMilli()
		if dir := path[:strings.LastIndexByte(path, '/')]; dir != "" && !slices.Contains(paths, dir) &&
			!strings.HasSuffix(dir, "/leases") && !strings.HasSuffix(dir, "/locks") {
			paths = append(paths, dir)
		}
	}
	// The server counts watches only when the next write is applied.
	must.Get(conns["0"].Set(ctx, "/plain/data", []byte("more text"), -1))(t)
	paths = append(paths, "/master", "/semempty", "/delayed", "/barrier", "/none")
	slices.Sort(paths)
	env = map[string]string{"ZLOCK_ADMIN": i.AdminAddr(), "ZLOCK_SERVERS": i.ClientAddr()}
	return env, "http://" + i.AdminAddr(), paths
}

// The type masked writes JSON objects with sorted fields. It replaces sessions, tokens and addresses by
// numbers, and leaves out times.
type masked struct {
	t     *testing.T
	names map[string]string
	count map[string]int
}

func (m *masked) name(kind, value string) string {
	key := kind + value
	if m.names[key] == "" {
		m.count[kind]++
		m.names[key] = kind + strconv.Itoa(m.count[kind])
	}
	return m.names[key]
}

var sessionLabel = regexp.MustCompile(`0x[0-9a-f]{8,}`)

func (m *masked) value(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = m.value(k, v[k])
		}
		return out
	case []any:
		for i := range v {
			v[i] = m.value(field, v[i])
		}
		return v
	case string:
		switch field {
		case "session":
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				v = fmt.Sprintf("0x%x", n)
			}
			if v == "0x0" {
				return v
			}
			return m.name("SESSION-", v)
		case "token", "fromToken", "toToken":
			if v == "0" {
				return v
			}
			return m.name("TOKEN-", v)
		case "addr":
			return "ADDR"
		case "waitingSince", "heldSince":
			return "TIME"
		case "label":
			return sessionLabel.ReplaceAllStringFunc(v, func(s string) string { return m.name("SESSION-", s) })
		}
		return v
	case float64:
		switch field {
		case "since", "heldSince", "oldestWait", "oldestWaitSeconds":
			if v != 0 {
				return "TIME"
			}
		case "token":
			return m.name("TOKEN-", strconv.FormatInt(int64(v), 10))
		}
		return v
	}
	return v
}

// lines() writes an object on one line, and each object in its lists on a line of its own.
func (m *masked) lines(into *bytes.Buffer, indent, name string, v any) {
	lists := map[string][]any{}
	if o, ok := v.(map[string]any); ok {
		for k, f := range o {
			if l, ok := f.([]any); ok && len(l) > 0 {
				if _, ok := l[0].(map[string]any); ok {
					lists[k] = l
					o[k] = len(l)
				}
			}
		}
	}
	b := must.Get(json.Marshal(v))(m.t)
	fmt.Fprintf(into, "%s%s%s\n", indent, name, b)
	for _, k := range slices.Sorted(maps.Keys(lists)) {
		for _, f := range lists[k] {
			m.lines(into, indent+"  ", k+" ", f)
		}
	}
}

// put() writes a title and some objects.
func (m *masked) put(into *bytes.Buffer, title, objects string) {
	fmt.Fprintf(into, "# %s\n", title)
	d := json.NewDecoder(strings.NewReader(objects))
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			m.t.Fatalf("%s: %v in %.300s", title, err, objects)
		}
		m.lines(into, "", "", m.value("", v))
	}
}

// The test makes locks of all layouts and kinds. The server's admin listener, zlock that reads the nodes, and
// zlock --server must describe these locks as the files of testdata/locks do.
func TestWhatIsToldOfLocks(t *testing.T) {
	env, admin, paths := planted(t)
	files := map[string]*bytes.Buffer{}
	maskers := map[string]*masked{}
	masker := func(file string) *masked {
		if maskers[file] == nil {
			maskers[file] = &masked{t, map[string]string{}, map[string]int{}}
		}
		return maskers[file]
	}
	into := func(file string) *bytes.Buffer {
		if files[file] == nil {
			files[file] = new(bytes.Buffer)
		}
		return files[file]
	}
	ask := func(file, path string) {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, admin+path, nil))(t)
		a := must.Get(http.DefaultClient.Do(r))(t)
		defer a.Body.Close()
		b := must.Get(io.ReadAll(a.Body))(t)
		masker(file).put(into(file), fmt.Sprintf("GET %s: %d", path, a.StatusCode), string(b))
	}
	run := func(file string, args ...string) {
		out, errs, code := runIn(t, env, args...)
		masker(file).put(into(file), fmt.Sprintf("zlock %s: %d", strings.Join(args, " "), code), out)
		if errs != "" {
			fmt.Fprintf(into(file), "%s", errs)
		}
	}
	ask("locks", "/locks?limit=1000")
	for _, q := range []string{
		"prefix=/cycle", "prefix=/tasks/", "kind=semaphore", "kind=unknown", "kind=latch", "holder=web-2",
		"holder=books", "waiting&prefix=/pol",
		"waiting&prefix=/policy", "sort=waiters&limit=3", "sort=path&offset=3&limit=2", "prefix=/none", "kind=none",
		"limit=0",
	} {
		ask("queries", "/locks?"+q)
	}
	for _, p := range paths {
		ask("lock", "/locks"+p)
		run("show", "show", "-o", "json", p)
		run("show-server", "show", "-o", "json", p, "--server")
	}
	ask("graph", "/wait-graph")
	ask("graph", "/wait-graph?prefix=/tasks")
	run("wait-graph", "wait-graph", "-o", "json")
	run("wait-graph", "wait-graph", "-o", "json", "/cycle")
	run("wait-graph-server", "wait-graph", "-o", "json", "--server")
	run("wait-graph-server", "wait-graph", "-o", "json", "/cycle", "--server")
	for _, args := range [][]string{{"-R"}, {"/"}, {"/cycle"}, {"-R", "--held", "/pol"},
		{"-R", "--held", "/policy"}, {"/none"}} {
		run("ls", append([]string{"ls", "-o", "json"}, args...)...)
		run("ls-server", append([]string{"ls", "-o", "json", "--server"}, args...)...)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, got := filepath.Join("testdata", "locks", name+".golden"), files[name].Bytes()
		if *update {
			must.OK(t, os.WriteFile(file, got, 0o644))
		}
		want := must.Get(os.ReadFile(file))(t)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what was told:\n%s", file, difference(string(want), string(got)))
		}
	}
}

// difference() shows the first lines that differ, with the title above them.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	title := ""
	for i := range min(len(w), len(g)) {
		if strings.HasPrefix(w[i], "# ") {
			title = w[i]
		}
		if w[i] != g[i] {
			return fmt.Sprintf("%s\nwant %s\ngot  %s", title, strings.Join(w[i:min(i+3, len(w))], "\n     "),
				strings.Join(g[i:min(i+3, len(g))], "\n     "))
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(g), len(w))
}
