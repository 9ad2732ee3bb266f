package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func restorer(t *testing.T, i *server.Instance) *backup.Restorer {
	return &backup.Restorer{Target: func() backup.Target { return i.Node() }, Dir: t.TempDir(), Log: quiet,
		Authorize: func(user, password string) bool { return user == "super" && password == "secret" }}
}

type said struct {
	V        int     `json:"v"`
	Command  string  `json:"command"`
	Error    *string `json:"error"`
	Zxid     string  `json:"last_zxid"`
	Nodes    int     `json:"nodes"`
	Sessions int     `json:"sessions"`
	Ended    int     `json:"ended"`
}

func put(t *testing.T, h http.Handler, method, query, auth string, body io.Reader) (int, said) {
	t.Helper()
	r := httptest.NewRequest(method, "/commands/restore"+query, body)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var s said
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &s))
	expect.Equal(t, s.V, 1, "s.V")
	expect.Equal(t, s.Command, "restore", "s.Command")
	expect.Equal(t, s.Error == nil, w.Code == 200, "s.Error == nil")
	return w.Code, s
}

func TestStateIsPutBack(t *testing.T) {
	i := serve(t, 50)
	saved := ask(handler(i), "GET", "?format=zlockd", "digest super:secret").Body.Bytes()
	c := must.Get(zk.Dial(t.Context(), i.ClientAddr(), zk.Options{}))(t)
	defer c.Close(context.Background())
	must.Get(c.Create(t.Context(), zk.Create{Path: "/new"}))(t)
	h, before := restorer(t, i), i.Node().Zxid()
	code, s := put(t, h, "POST", "", "digest super:secret", bytes.NewReader(saved))
	must.Equal(t, code, 200, "code")
	must.Equal(t, s.Nodes, 49, "s.Nodes")
	must.Equal(t, s.Sessions, 0, "s.Sessions")
	must.Equal(t, s.Ended, 2, "s.Ended")
	must.Equal(t, s.Zxid, fmt.Sprintf("0x%x", i.Node().Zxid()), "s.Zxid")
	must.That(t, i.Node().Zxid() > before,
		"%d %+v: want i.Node().Zxid() > before", code, s)
	expect.Is(t, expect.Err(c.Get(t.Context(), "/n1")), zk.ErrSessionExpired, "a client from before")
	again := must.Get(zk.Dial(t.Context(), i.ClientAddr(), zk.Options{}))(t)
	defer again.Close(context.Background())
	for path, want := range map[string]bool{"/n1": true, "/n10": false, "/new": false} {
		_, err := again.Get(t.Context(), path)
		expect.Equal(t, err == nil, want, "%s: %v", path, err)
	}
	code, s = put(t, h, "POST", "?keep-sessions=true", "digest super:secret", bytes.NewReader(saved))
	expect.Equal(t, code, 200, "exit code")
	expect.Equal(t, s.Nodes, 54, "nodes")
	expect.Equal(t, s.Sessions, 1, "sessions")
	left(t, h)
}

// left() checks that nothing of the received data remains, not even an open file without a name.
func left(t *testing.T, h *backup.Restorer) {
	t.Helper()
	expect.Equal(t, len(must.Get(os.ReadDir(h.Dir))(t)), 0, "left behind")
	open, _ := os.ReadDir("/proc/self/fd") // only Linux has this directory
	for _, fd := range open {
		file, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		expect.That(t, !strings.HasPrefix(file, h.Dir), "%s is open", file)
	}
}

func TestWhatIsNotPutBack(t *testing.T) {
	i := serve(t, 50)
	saved := ask(handler(i), "GET", "?format=zlockd", "digest super:secret").Body.Bytes()
	zoo := ask(handler(i), "GET", "", "digest super:secret").Body.Bytes()
	flipped := bytes.Clone(saved)
	flipped[len(flipped)/2] ^= 4
	h, zxid := restorer(t, i), i.Node().Zxid()
	const auth = "digest super:secret"
	for _, c := range []struct {
		what, method, auth string
		body               io.Reader
		code               int
		want               string
	}{
		{"GET", "GET", auth, bytes.NewReader(saved), 405, "POST"},
		{"nobody", "POST", "", bytes.NewReader(saved), 401, "Auth info is missing"},
		{"a wrong password", "POST", "digest super:wrong", bytes.NewReader(saved), 403, "Not authorized"},
		{"a torn file", "POST", auth, bytes.NewReader(saved[:len(saved)-30]), 400, "use another"},
		{"a flipped byte", "POST", auth, bytes.NewReader(flipped), 400, "use another"},
		{"nothing", "POST", auth, strings.NewReader(""), 400, "use another"},
		{"something else", "POST", auth, strings.NewReader(strings.Repeat("no backup ", 1000)), 400, "use another"},
		{"a ZooKeeper's snapshot", "POST", auth, bytes.NewReader(zoo), 400, "zlockd restore FILE"},
		{"a connection that breaks", "POST", auth, io.MultiReader(bytes.NewReader(saved[:500]),
			iotest.ErrReader(io.ErrUnexpectedEOF)), 400, "did not arrive"},
	} {
		code, s := put(t, h, c.method, "", c.auth, c.body)
		expect.Equal(t, code, c.code, "%s: code", c.what)
		if expect.That(t, s.Error != nil, "%s: %d %+v: want s.Error != nil", c.what, code, s) {
			expect.Has(t, *s.Error, c.want, "%s", c.what)
		}
	}
	full := &fullDisk{Target: i.Node(), room: 1}
	for _, room := range []int{0, 1} {
		full.room = room
		h.Target = func() backup.Target { return full }
		code, s := put(t, h, "POST", "", auth, io.MultiReader(bytes.NewReader(make([]byte, 5<<20))))
		expect.Equal(t, code, 507, "a full disk: exit code")
		expect.Has(t, *s.Error, "no room", "a full disk: error")
	}
	h.Target = func() backup.Target { return nil }
	if code, _ := put(t, h, "POST", "", auth, bytes.NewReader(saved)); code != 503 {
		t.Errorf("before the server has joined: %d", code)
	}
	h.Authorize = nil
	if code, _ := put(t, h, "POST", "", auth, bytes.NewReader(saved)); code != 403 {
		t.Errorf("without a super user: %d", code)
	}
	left(t, h)
	expect.Equal(t, i.Node().Zxid(), zxid, "something has changed: zxid 0x%x, was 0x", i.Node().Zxid())
}

// fullDisk is a Target whose disk has room for a limited number of steps.
type fullDisk struct {
	backup.Target
	room int
}

func (f *fullDisk) Room(int64) error {
	if f.room--; f.room < 0 {
		return upkeep.ErrNoRoom
	}
	return nil
}

// The server receives one restore at a time; a second one gets an error at once.
func TestOneIsPutBackAtATime(t *testing.T) {
	i := serve(t, 5)
	h := restorer(t, i)
	r, w := io.Pipe()
	first := make(chan int)
	go func() {
		code, _ := put(t, h, "POST", "", "digest super:secret", r)
		first <- code
	}()
	_, err := w.Write([]byte("x")) // returns when the server reads the backup
	must.OK(t, err)
	code, s := put(t, h, "POST", "", "digest super:secret", strings.NewReader(""))
	expect.Equal(t, code, 409, "exit code")
	expect.Has(t, *s.Error, "under way", "error")
	w.Close()
	expect.Equal(t, <-first, 400, "the first")
}

// answers is a Target whose restores end as a test wants.
type answers struct {
	backup.Target
	err  error
	keep bool
}

func (a *answers) Restore(_ context.Context, from io.Reader, size int64, keep bool) (
	restore.Restored, error) {
	n, err := io.Copy(io.Discard, from)
	a.keep = keep
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	return restore.Restored{Restored: state.Restored{Nodes: 1, Sessions: 2, Ended: 3}, Zxid: 31},
		errors.Join(err, a.err)
}

// The answer says whether a restore was refused, or whether its outcome is not known.
func TestOutcomesOfARestoreAreTold(t *testing.T) {
	i := serve(t, 5)
	saved := ask(handler(i), "GET", "?format=zlockd", "digest super:secret").Body.Bytes()
	h := restorer(t, i)
	for _, c := range []struct {
		query string
		err   error
		code  int
		want  string
	}{
		{"", nil, 200, ""},
		{"?keep-sessions=true", nil, 200, ""},
		{"?keep-sessions=false", restore.ErrNotKnown, 503, "Once a leader serves, compare by zlockd verify"},
		{"", restore.ErrRestoring, 409, restore.ErrRestoring.Error()},
		{"", errors.New("too many nodes"), 503, "too many nodes"},
	} {
		target := &answers{Target: i.Node(), err: c.err}
		h.Target = func() backup.Target { return target }
		code, s := put(t, h, "POST", c.query, "digest super:secret", bytes.NewReader(saved))
		expect.Equal(t, code, c.code, "%v: code", c.err)
		expect.Equal(t, target.keep, c.query == "?keep-sessions=true",
			"%v: target.keep", c.err)
		if s.Error != nil {
			expect.Has(t, *s.Error, c.want)
			s.Error = nil
			expect.Equal(t, s, said{V: 1, Command: "restore"}, "%v", c.err)
			continue
		}
		expect.Equal(t, s, said{V: 1, Command: "restore", Zxid: "0x1f", Nodes: 1, Sessions: 2, Ended: 3})
	}
	left(t, h)
}

// If there is no directory for a backup, the server refuses the backup and reads none of it.
func TestBackupThatCannotBeKeptIsRefused(t *testing.T) {
	h := restorer(t, serve(t, 5))
	h.Dir += "/none"
	code, s := put(t, h, "POST", "", "digest super:secret", iotest.ErrReader(io.ErrUnexpectedEOF))
	expect.Equal(t, code, 507, "code")
	expect.Has(t, *s.Error, "none")
}
