package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

func TestNodeIDsBearTheSession(t *testing.T) {
	t.Parallel()
	for _, sid := range []int64{0, 1, -1, 0x100000a5f6260001, math.MinInt64, math.MaxInt64, 0x0123456789abcdef} {
		seen := map[recipe.ID]bool{}
		for range 100 {
			id := newNodeID(sid)
			got, ours := sessionOf(id)
			must.That(t, ours, "%s: not ours", id.UUID())
			must.Equal(t, got, sid, "session of %s", id.UUID())
			must.Equal(t, versionOf(id), 8, "version of %s", id.UUID())
			must.That(t, !seen[id], "%s comes twice", id.UUID())
			seen[id] = true
			p, ok := recipe.ParseUUID(id.UUID())
			must.That(t, ok, "%s does not parse", id.UUID())
			must.Equal(t, p, id)
			p, ok = recipe.ParseHex(id.Hex())
			must.That(t, ok, "%s does not parse", id.Hex())
			must.Equal(t, p, id)
		}
	}
	if id, _ := recipe.ParseUUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8"); true {
		if _, ours := sessionOf(id); ours {
			t.Fatal("a version 4 id is not ours")
		}
	}
}

func TestE22NameParsing(t *testing.T) {
	t.Parallel()
	id := newNodeID(0x1234)
	for _, c := range []struct {
		name   string
		ok     bool
		layout Layout
		kind   recipe.Role
		seq    int32
		maker  recipe.Maker
	}{
		{"_c_" + id.UUID() + "-lock-0000000007", true, LayoutCurator, recipe.RoleLock, 7, recipe.MakerSelf},
		{"_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-0000000007", true, LayoutCurator, recipe.RoleLock, 7,
			recipe.MakerCurator},
		{"_c_7702b739df7cbc3f0a3c556ad001a029-lock-0000000003", true, LayoutCurator, recipe.RoleLock, 3,
			recipe.MakerGo},
		{"lock-0000000003", true, LayoutCurator, recipe.RoleLock, 3, recipe.MakerUnknown},
		{"_c_" + id.UUID() + "-lock--2147483648", true, LayoutCurator, recipe.RoleLock, math.MinInt32,
			recipe.MakerSelf},
		{"_c_" + id.UUID() + "-lock--000000005", true, LayoutCurator, recipe.RoleLock, -5, recipe.MakerSelf},
		{"_c_" + id.UUID() + "-lock-2147483647", true, LayoutCurator, recipe.RoleLock, math.MaxInt32,
			recipe.MakerSelf},
		{"_c_" + id.UUID() + "-__READ__0000000001", true, LayoutCurator, recipe.RoleRead, 1, recipe.MakerSelf},
		{"_c_" + id.UUID() + "-__WRIT__0000000001", true, LayoutCurator, recipe.RoleWrite, 1, recipe.MakerSelf},
		{"_c_" + id.UUID() + "-lease-0000000001", true, LayoutCurator, recipe.RoleLease, 1, recipe.MakerSelf},
		{"_c_" + id.UUID() + "-latch-0000000001", true, LayoutCurator, recipe.RoleLatch, 1, recipe.MakerSelf},
		{id.Hex() + "__lock__0000000002", true, LayoutKazoo, recipe.RoleLock, 2, recipe.MakerSelf},
		{"f65a711639a74cab9e5222dd97208552__lock__0000000000", true, LayoutKazoo, recipe.RoleLock, 0,
			recipe.MakerKazoo},
		{"f65a711639a74cab9e5222dd97208552__rlock__0000000009", true, LayoutKazoo, recipe.RoleRead, 9,
			recipe.MakerKazoo},
		{"web1-R-0000000001", true, LayoutHost, recipe.RoleRead, 1, recipe.MakerUnknown},
		{"web_1~" + id.Hex() + "-W-0000000001", true, LayoutHost, recipe.RoleWrite, 1, recipe.MakerSelf},
		// markers in the host name
		{"lock-R-x-W-0000000004", true, LayoutHost, recipe.RoleWrite, 4, recipe.MakerUnknown},
		{"a__lock__b-R-0000000004", true, LayoutHost, recipe.RoleRead, 4, recipe.MakerUnknown},
		{"lock-000000003", false, 0, 0, 0, 0},   // 9 digits
		{"lock-00000000003", false, 0, 0, 0, 0}, // 11 digits
		{"lock-2147483648", false, 0, 0, 0, 0},  // more than an int32
		{"lock--2147483649", false, 0, 0, 0, 0},
		{"lock--0000000005", false, 0, 0, 0, 0}, // one zero too many
		{"lock-+000000003", false, 0, 0, 0, 0},
		{"lock-", false, 0, 0, 0, 0},
		{"lock-12345x7890", false, 0, 0, 0, 0},
		{"config", false, 0, 0, 0, 0},
		{"", false, 0, 0, 0, 0},
		{"_c_", false, 0, 0, 0, 0},
		{"0000000001", false, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, l, ok := recipe.ParseName(c.name)
			expect.Equal(t, ok, c.ok, "whether %q is a contender", c.name)
			if ok && c.ok {
				expect.Equal(t, l, c.layout, "layout of %q", c.name)
				expect.Equal(t, got.Kind, c.kind, "role of %q", c.name)
				expect.Equal(t, got.Seq, c.seq, "number of %q", c.name)
				expect.Equal(t, got.Maker, c.maker, "maker of %q", c.name)
			}
		})
	}
	for _, seq := range []int32{0, 1, -1, 999999999, -999999999, math.MinInt32, math.MaxInt32} {
		s := fmt.Sprintf("%010d", seq)
		got, ok := recipe.ParseSeq(s)
		expect.That(t, ok, "%q has no number", s)
		expect.Equal(t, got, seq, "number of %q", s)
	}
}

// Where a Likeness can read a name, the result is the same as that of ParseName.
func TestLikenessReadsWhatParseNameReads(t *testing.T) {
	t.Parallel()
	id, other := newNodeID(1), newNodeID(2)
	tails := []string{"-lock-0000000007", "-lock-2147483647", "-lock-2147483648", "-lock--000000005",
		"-lock--1000000001", "-lock--2147483648",
		"-lock-00000000x7", "-__READ__0000000001", "-__WRIT__0000000001", "-latch-0000000001", "-lease-0000000001"}
	var all []string
	for _, tail := range tails {
		all = append(all, "_c_"+id.UUID()+tail, "_c_"+other.UUID()+tail, "_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8"+
			tail, "_x_"+other.UUID()+tail)
	}
	shortcuts := 0
	for _, own := range all {
		self, _, _ := recipe.ParseName(own)
		for _, name := range all {
			want, _, _ := recipe.ParseName(name)
			if got, ok := recipe.LikenessOf(self).Read(name); ok {
				if shortcuts++; got != want {
					t.Errorf("beside %s, %s is read as %+v, not %+v", own, name, got, want)
				}
			}
		}
	}
	expect.That(t, shortcuts != 0, "no shortcut was taken")
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"_c_x-lock-0000000001", "a-R--000000001", "__lock__-2147483648"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, l, ok := recipe.ParseName(name)
		if !ok {
			return
		}
		m, found := recipe.MarkerOf(l, c.Kind)
		must.That(t, found, "%q: no marker for %+v %v", name, c, l)
		must.That(t, strings.HasSuffix(name, m+fmt.Sprintf("%010d", c.Seq)), "%q: %+v %v", name, c, l)
		findID(name)
		recipe.ParsePolicyNode(name)
	})
}

// TestE20OnAServerThatWraps takes a lock on a server whose sequence numbers wrap.
func TestE20OnAServerThatWraps(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, err := zlockd.Start(ctx, zlockd.Options{
		ClientAddr: "127.0.0.1:0", MinSessionTimeout: time.Second,
		Test:   func(o *raftfsm.Options) { o.Stores = disk.NewMemoryStores(false) },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.Ready(ctx)
	}
	must.OK(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	leakCheck(t)
	o := observerTo(t, s.ClientAddr())
	c := dialTo(t, s.ClientAddr(), steady()...)
	const d = "/wrap"
	unlock(t, lock(t, c.Mutex(d).Lock))
	s.Node().View(func(st *state.State) { // no other goroutine uses the state now
		made := tree.Maker{Tree: st.Tree()}
		dir, _ := made.Get(d)
		dir.Counter = math.MaxInt32 - 1
		must.OK(t, made.Set(d, &dir))
	})
	var gs []granting
	for i := range 4 {
		gs = append(gs, start(ctx, c.Mutex(d, WithOwnPlace()).Lock))
		queued(t, o, d, i+1)
	}
	var seqs []int32
	var token fence.Token
	for i, g := range gs {
		l := g.wait(t)
		for _, later := range gs[i+1:] {
			must.That(t, later.pending(), "two hold")
		}
		must.That(t, l.Token() > token, "token %d after %d", l.Token(), token)
		token = l.Token()
		c, _, _ := recipe.ParseName(recipe.Base(l.Node()))
		seqs = append(seqs, c.Seq)
		unlock(t, l)
	}
	if want := []int32{math.MaxInt32 - 1, math.MaxInt32, math.MinInt32, math.MinInt32 + 1}; !slices.Equal(seqs,
		want) {
		t.Fatalf("numbers %v, want %v", seqs, want)
	}
	l := lock(t, c.Mutex(d).Lock)
	must.OK(t, c.Inspector().Break(ctx, d, recipe.Base(l.Node()), l.Token()))
	soon(t, "the loss", l.Lost())
}

func TestE21SequenceWrapsBesideAForeignContender(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock))
	foreign := d + "/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-2147483646"
	must.OK(t, errOf(o.Create(foreign, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	wantErr(t, errOf(c.Mutex(d).Lock(testCtx(t))), ErrSequenceExhausted)
	wantErr(t, errOf(c.Mutex(d).TryLock(testCtx(t))), ErrSequenceExhausted)
	queued(t, o, d, 1)
	remove(t, o, foreign)
	unlock(t, lock(t, c.Mutex(d).Lock))
}

func TestE24KazooNodeInACuratorDirectory(t *testing.T) {
	t.Parallel()
	own := "_c_" + newNodeID(1).UUID() + "-lock-0000000001"
	kazoo := "f65a711639a74cab9e5222dd97208552__lock__0000000000"
	curator := "_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-0000000002"
	kazooR := "f65a711639a74cab9e5222dd97208552__rlock__0000000000"
	for _, c := range []struct {
		l     Layout
		names []string
		rw    bool
		err   error
		first string
	}{
		{LayoutCurator, []string{own, kazoo}, false, nil, kazoo},
		{LayoutCurator, []string{own, kazoo, curator}, false, ErrMixedLayout, ""},
		{LayoutCurator, []string{own, curator}, false, nil, own},
		{LayoutCurator, []string{own, kazoo}, true, ErrMixedLayout, ""},
		{LayoutCurator, []string{own, kazooR}, false, ErrMixedLayout, ""},
		{LayoutCurator, []string{own, "h-R-0000000003"}, false, ErrMixedLayout, ""},
		{LayoutKazoo, []string{kazoo, own}, false, ErrMixedLayout, ""},
		{LayoutKazoo, []string{kazoo, kazooR}, true, nil, kazoo},
		{LayoutHost, []string{"h-R-0000000003", kazoo}, true, ErrMixedLayout, ""},
	} {
		q, _, err := turns.QueueOf(c.l, c.names, c.rw)
		expect.Is(t, err, c.err, "%v %v", c.l, c.names)
		if err == nil && c.err == nil {
			expect.Equal(t, q[0].Name, c.first, "%v %v", c.l, c.names)
		}
	}
	shared(t)
	cl, o, d := dial(t), observer(t), dir(t)
	unlock(t, lock(t, cl.Mutex(d).Lock))
	for _, n := range []string{kazoo, curator} {
		must.OK(t, errOf(o.Create(d+"/"+n, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	}
	wantErr(t, errOf(cl.Mutex(d).Lock(testCtx(t))), ErrMixedLayout)
	queued(t, o, d, 2)
	if q := must.Get(cl.Inspector().Inspect(testCtx(t), d))(t); !q.Mixed {
		t.Fatalf("%+v", q)
	}
}

func TestE59NodeDataOfAnyKind(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	for _, data := range [][]byte{nil, {}, []byte("{"), []byte(`{"v":2}`), []byte("10.0.0.1"),
		[]byte("\xff\xfe"), []byte(strings.Repeat("x", 100_000)), []byte(`{"v":1,"pid":"x"}`)} {
		must.OK(t, errOf(o.Set(l.Node(), data, -1)))
		q, err := c.Inspector().Inspect(testCtx(t), d)
		must.OK(t, err, "%.20q", data)
		must.Equal(t, len(q.Holders), 1, "holders of %.20q", data)
		e := q.Holders[0]
		must.That(t, e.Owner == nil, "%.20q: an owner", data)
		must.That(t, len(e.Data) <= 200+3, "%.20q: %d bytes, want 203 at most", data, len(e.Data))
		must.That(t, utf8.ValidString(e.Data), "%.20q: no text", data)
		must.OK(t, errOf(json.Marshal(q)))
	}
	must.OK(t, l.Check(testCtx(t)))
	unlock(t, l)
}

func FuzzOwnerData(f *testing.F) {
	f.Add("reason", []byte("{}"))
	f.Add(strings.Repeat("\x00é\"", 900), []byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, reason string, data []byte) {
		b := recipe.EncodeOwner(recipe.Owner{Host: "h", PID: 1, Cmd: reason, Reason: reason, Task: reason,
			Revoke: &recipe.Revocation{By: "x"}})
		must.That(t, len(b) <= recipe.MaxOwnerData, "%d bytes", len(b))
		_, ok := recipe.ParseOwner(b)
		must.That(t, ok, "%q does not parse", b)
		recipe.ParseOwner(data)
		recipe.RevocationIn(data)
		recipe.ParseRecord(data)
	})
}

func TestE65TokensBeyondTheIntegersOfJSON(t *testing.T) {
	t.Parallel()
	const big = 1<<53 + 1
	b, err := json.Marshal(recipe.Entry{Token: big, Session: math.MaxInt64, Mode: recipe.Exclusive})
	must.OK(t, err)
	expect.Has(t, string(b), `"token":"9007199254740993"`)
	expect.Has(t, string(b), `"session":"0x7fffffffffffffff"`)
	var e recipe.Entry
	must.OK(t, json.Unmarshal(b, &e))
	must.Equal(t, e.Token, big)
}

// sessionOf returns the session that asked for the node, if this package made the id.
func sessionOf(id recipe.ID) (sid int64, ours bool) {
	a, b := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	if versionOf(id) != 8 || b>>62 != 2 {
		return 0, false
	}
	return int64(a>>16<<16 | (a&0xfff)<<4 | b>>58&0xf), true
}

// versionOf returns the version of a UUID: 8 for an id of this package, 4 for Curator's.
func versionOf(id recipe.ID) byte { return id[6] >> 4 }

// findID finds an id anywhere in a name, in the form of a UUID or of hexadecimal digits.
func findID(name string) (recipe.ID, bool) {
	for i := 0; i+32 <= len(name); i++ {
		if i+36 <= len(name) {
			if id, ok := recipe.ParseUUID(name[i : i+36]); ok {
				return id, true
			}
		}
		if id, ok := recipe.ParseHex(name[i : i+32]); ok {
			return id, true
		}
	}
	return recipe.ID{}, false
}
