package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

var quiet = slog.New(slog.DiscardHandler)

// serve runs a server whose state is in memory and has n nodes.
func serve(t *testing.T, n int) *server.Instance {
	t.Helper()
	i := must.Get(server.Start(t.Context(), server.Options{ClientAddr: "127.0.0.1:0", Logger: quiet}))(t)
	t.Cleanup(func() { i.Close(context.Background()) })
	must.OK(t, i.Ready(t.Context()))
	c := must.Get(zk.Dial(t.Context(), i.ClientAddr(), zk.Options{}))(t)
	t.Cleanup(func() { c.Close(context.Background()) })
	for k := range n {
		mode := zk.Persistent
		if k%10 == 0 {
			mode = zk.Ephemeral
		}
		must.Get(c.Create(t.Context(), zk.Create{Path: fmt.Sprint("/n", k), Data: []byte("x"), Mode: mode}))(t)
	}
	return i
}

func handler(i *server.Instance) *backup.Handler {
	return &backup.Handler{Source: func() backup.Source { return i.Node() }, Log: quiet,
		Authorize: func(user, password string) bool { return user == "super" && password == "secret" }}
}

func ask(h http.Handler, method, query, auth string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/commands/snapshot"+query, nil)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestStateIsGivenOut(t *testing.T) {
	i := serve(t, 50)
	h := handler(i)
	ours := ask(h, "GET", "?format=zlockd", "digest super:secret")
	b := must.Get(state.CheckBackup(bytes.NewReader(ours.Body.Bytes())))(t)
	zxid := b.Zxid
	expect.Equal(t, b.Nodes, 54,
		"%d nodes, zxid 0x%x, header %v: b.Nodes", b.Nodes, zxid, ours.Header())
	expect.Equal(t, b.Sessions, 1,
		"%d nodes, zxid 0x%x, header %v: b.Sessions", b.Nodes, zxid, ours.Header())
	expect.Equal(t, ours.Header().Get("last_zxid"), fmt.Sprintf("0x%x", zxid),
		"%d nodes, zxid 0x%x, header %v", b.Nodes, zxid, ours.Header())
	expect.Equal(t, zxid, i.Node().Zxid(),
		"%d nodes, zxid 0x%x, header %v: zxid", b.Nodes, zxid, ours.Header())
	theirs := ask(h, "GET", "", "Digest super:secret")
	r := must.Get(zkfiles.NewSnapshotReader(theirs.Body))(t)
	tree := must.Get(zkfiles.Load(r, zxid))(t)
	expect.Equal(t, tree.Nodes.Count(), 54,
		"%d nodes, %d sessions: tree.Nodes.Count()", tree.Nodes.Count(), len(tree.Sessions))
	if expect.Equal(t, len(tree.Sessions), 1,
		"%d nodes, %d sessions: len(tree.Sessions)", tree.Nodes.Count(), len(tree.Sessions)) {
		expect.That(t, tree.Whole(),
			"%d nodes, %d sessions: want tree.Whole()", tree.Nodes.Count(), len(tree.Sessions))
		expect.Equal(t, r.Digest.Zxid, zxid,
			"%d nodes, %d sessions: r.Digest.Zxid", tree.Nodes.Count(), len(tree.Sessions))
	}
}

func TestStateIsGivenToNobodyElse(t *testing.T) {
	i := serve(t, 1)
	h := handler(i)
	for _, c := range []struct {
		method, query, auth string
		code                int
	}{
		{"POST", "", "digest super:secret", 405}, {"HEAD", "", "digest super:secret", 405},
		{"GET", "", "", 401}, {"GET", "", "Basic c3VwZXI6c2VjcmV0", 401}, {"GET", "", "digest super", 403},
		{"GET", "", "digest super:wrong", 403}, {"GET", "?streaming=false", "digest super:secret", 400},
		{"GET", "?format=x", "digest super:secret", 400},
	} {
		w := ask(h, c.method, c.query, c.auth)
		expect.Equal(t, w.Code, c.code, "%+v: w.Code", c)
		expect.That(t, w.Body.Len() <= 200,
			"%+v: %d %s: want w.Body.Len() <= 200", c, w.Code, w.Body)
	}
	h.Authorize = nil
	expect.Equal(t, ask(h, "GET", "", "digest super:secret").Code, 403, "without a super user")
	h.Source = func() backup.Source { return nil }
	h.Authorize = func(string, string) bool { return true }
	expect.Equal(t, ask(h, "GET", "", "digest super:secret").Code, 503, "before the server has joined")
}

// unable is a state that cannot be backed up.
type unable struct{ why error }

func (u unable) Backup(context.Context) (*apply.Backup, error) { return nil, u.why }

// A refused backup is answered in JSON, whatever the error's text contains.
func TestARefusedBackupIsJSON(t *testing.T) {
	why := "no room in \"/data\": \a\x1b, é"
	h := &backup.Handler{Source: func() backup.Source { return unable{errors.New(why)} }, Log: quiet,
		Authorize: func(string, string) bool { return true }}
	var a struct{ Command, Error string }
	w := ask(h, "GET", "", "digest super:secret")
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &a), "%s", w.Body)
	expect.Equal(t, w.Code, 503, "w.Code")
	expect.Equal(t, a.Command, "snapshot", "a.Command")
	expect.Equal(t, a.Error, why, "a.Error")
}

// broken is a connection that breaks after some bytes.
type broken struct {
	http.ResponseWriter
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// After a broken connection the server sends the next backup, and does not count the broken one as complete.
func TestBrokenConnectionFreesTheState(t *testing.T) {
	i := serve(t, 50)
	h := handler(i)
	for _, query := range []string{"", "?format=zlockd"} {
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("it looks as if everything was sent")
				}
			}()
			r := httptest.NewRequest("GET", "/commands/snapshot"+query, nil)
			r.Header.Set("Authorization", "digest super:secret")
			h.ServeHTTP(&broken{httptest.NewRecorder(), 100}, r)
		}()
		w := ask(h, "GET", query, "digest super:secret")
		expect.Equal(t, w.Code, 200, "the next one: %d %s", w.Code, w.Body)
	}
	must.OK(t, i.Node().Snapshot())
}

// clock is a clock that the test moves.
type clock struct {
	at   atomic.Int64 // the present time in ns
	tick chan time.Time
}

func newClock() *clock {
	c := &clock{tick: make(chan time.Time)}
	c.at.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func (c *clock) move(d time.Duration) { c.at.Add(int64(d)) }

func taker(i *server.Instance, c *clock, dir string, id uint32, rank, of int) *backup.Taker {
	return &backup.Taker{Dir: dir, Interval: time.Hour, Keep: 3, ID: id, Log: quiet,
		Tick: c.tick, Cluster: func() string { return "ours" },
		Source: func() backup.Source { return i.Node() }, Place: func() (int, int) { return rank, of }, Now: c.now}
}

// begin runs a Taker until stop() is called.
func begin(t *testing.T, k *backup.Taker) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	return func() { cancel(); <-done }
}

func backups(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".backup") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names
}

func TestBackupsAreTakenInTurn(t *testing.T) {
	i := serve(t, 5)
	dir := filepath.Join(t.TempDir(), "backups[1]")
	must.OK(t, os.Mkdir(dir, 0o700))
	left := filepath.Join(dir, "zlockd-2-20200101T000000Z-0-ours.backup.tmp")
	must.OK(t, os.WriteFile(left, nil, 0o600))
	c := newClock()
	k := taker(i, c, dir, 2, 1, 4)
	stop := begin(t, k)
	at := map[int]int{}
	for minute := range 5 * 60 {
		before := k.State().Taken
		if minute > 0 {
			c.move(time.Minute)
		}
		c.tick <- c.now()
		c.tick <- c.now() // now the first tick has been handled
		if k.State().Taken > before {
			at[minute%60]++
		}
	}
	stop()
	if at[15] != 5 || k.State().Failed != 0 { // the second of four servers takes its backups at minute 15
		t.Errorf("taken at the minutes %v, %+v", at, k.State())
	}
	names := backups(t, dir)
	expect.Equal(t, len(names), 3, "kept %v", names)
	expect.Fails(t, expect.Err(os.Stat(left)), "an unfinished backup was not removed")
	for _, n := range names {
		s := must.Get(offline.ReadBackup(n))(t)
		expect.Equal(t, s.Tree().Count(), 9, "%s: %d nodes", n, s.Tree().Count())
	}
}

// The newest backup is kept even if a program that embeds a server asks for a senseless number of backups.
func TestTheNewestBackupIsKept(t *testing.T) {
	i := serve(t, 1)
	dir := t.TempDir()
	c := newClock()
	k := taker(i, c, dir, 1, 0, 1)
	k.Keep = -1
	stop := begin(t, k)
	for range 2 {
		c.tick <- c.now()
		c.tick <- c.now()
		c.move(time.Hour)
	}
	stop()
	expect.Equal(t, len(backups(t, dir)), 1)
	expect.Equal(t, k.State().Taken, 2)
}

// After a restart, the age of the newest backup is the age of its file, unless the file's time is in the
// future.
func TestLastBackupOfAnEarlierLife(t *testing.T) {
	for _, age := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		c := newClock()
		var want time.Time
		if age > 0 {
			want = c.now().Add(-age)
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "zlockd-1-20251231T230000Z-0000000000000001-ours.backup")
		must.OK(t, os.WriteFile(file, nil, 0o600))
		must.OK(t, os.Chtimes(file, time.Time{}, c.now().Add(-age)))
		k := taker(nil, c, dir, 1, 0, 1)
		k.Source = func() backup.Source { return nil }
		stop := begin(t, k)
		c.tick <- c.now()
		stop()
		expect.That(t, k.State().Last.Equal(want), "age %v: the last backup is of %v", age, k.State().Last)
	}
}

// Backups with a time in the future, from a clock that was ahead, count as the oldest backups.
func TestBackupsOfAClockThatWasAhead(t *testing.T) {
	i := serve(t, 5)
	dir := t.TempDir()
	c := newClock()
	run := func(hours int) (newest string) {
		k := taker(i, c, dir, 1, 0, 1)
		c.move(time.Hour)
		stop := begin(t, k)
		for hour := range hours {
			if hour > 0 { // the first backup is taken at once
				c.move(time.Hour)
			}
			c.tick <- c.now()
			c.tick <- c.now()
			newest = filepath.Join(dir, fmt.Sprintf("zlockd-1-%s-", c.now().UTC().Format("20060102T150405Z")))
			names := backups(t, dir)
			if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, newest) }) {
				t.Errorf("the backup just taken, %s, is gone: %v", newest, names)
			}
		}
		expect.Equal(t, k.State().Failed, 0,
			"%+v, the newest is %v old: k.State().Failed", k.State(), k.State().Age)
		expect.Equal(t, k.State().Age, 0,
			"%+v, the newest is %v old: k.State().Age", k.State(), k.State().Age)
		stop()
		return newest
	}
	const years = 3 * 365 * 24 * time.Hour
	c.move(years)
	ahead := run(4)
	c.move(-years)
	run(2)
	names := backups(t, dir)
	if expect.Equal(t, len(names), 3, "after 2: number of names %v", names) {
		expect.That(t, strings.HasPrefix(names[2], ahead), "after 2: %v", names)
	}
	run(2)
	names = backups(t, dir)
	if expect.Equal(t, len(names), 3, "after 4: number of names %v", names) {
		expect.That(t, !strings.HasPrefix(names[2], ahead), "after 4: %v", names)
	}
}

// hung starts a Taker whose next backup goes to a file that does not respond.
func hung(t *testing.T, patience time.Duration) (i *server.Instance, c *clock, k *backup.Taker, hangs string,
	stop func()) {
	i, c = serve(t, 5), newClock()
	k = taker(i, c, t.TempDir(), 1, 0, 1)
	k.Patience = patience
	var begun atomic.Bool
	k.Source = func() backup.Source {
		if begun.Load() {
			return i.Node()
		}
		return nil
	}
	stop = begin(t, k)
	c.tick <- c.now()
	c.tick <- c.now()
	hangs = filepath.Join(k.Dir, fmt.Sprintf("zlockd-1-%s-%016x-ours.backup.tmp",
		c.now().UTC().Format("20060102T150405Z"), i.Node().Zxid()))
	must.OK(t, unix.Mkfifo(hangs, 0o600)) // without a reader, no writer can open it
	begun.Store(true)
	return i, c, k, hangs, stop
}

// A disk that hangs must not keep the server from stopping.
func TestDiskThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	i, c, _, _, stop := hung(t, time.Hour)
	must.Await(t, "the backup is not under way", time.Minute, func() bool {
		select {
		case c.tick <- c.now():
		default: // the Taker already takes the backup
		}
		wait, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		b, err := i.Node().Backup(wait)
		if err == nil {
			b.Close()
		}
		return err != nil
	})
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Error("the end waits for the disk")
	}
}

// While the disk of the backups hangs, the server can take snapshots and shorten its log.
func TestDiskThatHangsHoldsNothing(t *testing.T) {
	i, c, k, hangs, stop := hung(t, 50*time.Millisecond)
	dir := k.Dir
	tick := func() {
		c.tick <- c.now()
		c.tick <- c.now()
	}
	for failed := range int64(2) { // the second time, the first backup still hangs, and no other begins
		tick()
		s := k.State()
		expect.Equal(t, s.Failed, failed+1, "s.Failed")
		expect.Has(t, s.Err, "does not respond")
		c.move(time.Hour)
	}
	wait, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := must.Get(i.Node().Backup(wait))(t)
	b.Close()
	r, err := os.OpenFile(hangs, os.O_RDONLY|unix.O_NONBLOCK, 0) // now the writer has a reader
	must.OK(t, err)
	defer r.Close()
	for len(backups(t, dir)) == 0 {
		must.OK(t, wait.Err(), "%+v", k.State())
		tick()
		c.move(time.Hour)
	}
	expect.Fails(t, expect.Err(os.Stat(hangs)), "what was begun was not removed")
	stop()
}

// A failed backup is tried again after a minute, then two, four and so on up to the interval. The notice says
// since when backups fail.
func TestFailedBackupIsTriedAgain(t *testing.T) {
	i := serve(t, 0)
	file := filepath.Join(t.TempDir(), "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	c := newClock()
	since := c.now().Format(time.RFC3339)
	k := taker(i, c, filepath.Join(file, "no-directory"), 1, 0, 1)
	stop := begin(t, k)
	defer stop()
	var tries []int64 // the minutes in which backups were tried
	var seen int64    // number of failures so far
	for minute := range int64(4 * 60) {
		if minute > 0 {
			c.move(time.Minute)
		}
		c.tick <- c.now()
		c.tick <- c.now()
		if failed := k.State().Failed; failed > seen {
			tries, seen = append(tries, minute), failed
		}
		expect.Has(t, k.Notice(), "have failed since "+since+", and there is none yet: ", "after %d min", minute)
	}
	expect.List(t, tries, []int64{0, 1, 3, 7, 15, 31, 63, 123, 183})
	expect.Has(t, k.Notice(), "not a directory")
	must.OK(t, os.Remove(file))
	c.move(time.Hour)
	c.tick <- c.now()
	c.tick <- c.now()
	expect.Equal(t, k.State().Taken, 1, "taken")
	expect.Equal(t, k.Notice(), "")
	must.OK(t, os.RemoveAll(file))
	must.OK(t, os.WriteFile(file, nil, 0o600))
	c.move(time.Hour)
	since = c.now().Format(time.RFC3339)
	c.tick <- c.now()
	c.tick <- c.now()
	expect.Has(t, k.Notice(), "have failed since "+since+", and the newest is 1h0m0s old: ")
	c.move(-24 * time.Hour) // the clock is set back a day, but the Taker tries again at once
	c.tick <- c.now()
	c.tick <- c.now()
	expect.Equal(t, k.State().Failed, int64(len(tries)+2), "failures")
}

// If no backup was even tried, a notice reports this as soon as two backups are missing.
func TestMissingBackupsAreTold(t *testing.T) {
	c := newClock()
	k := taker(nil, c, t.TempDir(), 1, 0, 1)
	k.Source = func() backup.Source { return nil }
	stop := begin(t, k)
	defer stop()
	for hour := range 4 {
		c.tick <- c.now()
		expect.Equal(t, strings.Contains(k.Notice(), "missing"), hour > 2, "after %d hours", hour)
		c.move(time.Hour)
	}
}

// failing is a Source without a state.
type failing struct{}

var errNoState = errors.New("there is no state")

func (failing) Backup(context.Context) (*apply.Backup, error) { return nil, errNoState }

// A backup that fails, or cannot be removed, is counted and logged.
func TestFailuresOfBackupsAreTold(t *testing.T) {
	i := serve(t, 1)
	for _, c := range []struct {
		source  backup.Source
		kept    bool // whether an old backup cannot be removed
		failed  int64
		err, in string
	}{
		{failing{}, false, 1, errNoState.Error(), "no backup taken"},
		{i.Node(), false, 0, "", "backup taken"},
		{i.Node(), true, 0, "", "old backup not removed"},
	} {
		var log must.Text
		clock := newClock()
		k := taker(i, clock, t.TempDir(), 1, 0, 1)
		k.Log, k.Keep = slog.New(slog.NewTextHandler(&log, nil)), 1
		k.Source = func() backup.Source { return c.source }
		if c.kept {
			old := filepath.Join(k.Dir, "zlockd-1-20200101T000000Z-0-ours.backup")
			must.OK(t, os.MkdirAll(filepath.Join(old, "file"), 0o700))
		}
		stop := begin(t, k)
		clock.tick <- clock.now()
		stop()
		s := k.State()
		expect.Equal(t, s.Failed, c.failed, "s.Failed")
		expect.Equal(t, s.Taken, 1-c.failed, "s.Taken")
		expect.Equal(t, s.Err, c.err, "s.Err")
		expect.Has(t, log.String(), c.in)
		expect.Equal(t, strings.Contains(log.String(), "not removed"), c.kept, "%s", log.String())
	}
}
