package act

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/test/expect"
)

// An action needs the token of the page and the super user's password. A refusal says what is missing. A dry
// run and a refusal change nothing.
func TestWhoMayActOnWhat(t *testing.T) {
	const node = "_c_0b4ae3a4-4fbd-8f4b-8d0f-4e5a7a0c1d01-lock-0000000000"
	const json, login = "application/json", "digest super:1"
	l := newLone()
	s := l.client()
	l.create(s, "/l", "", 0)
	l.create(s, "/l/"+node, `{"v":1,"pid":7}`, jute.FlagEphemeral)
	is, _ := l.node("/l/" + node)
	super := port.Super(func(user, password string) bool { return user+password == "super1" })
	actor := func(super port.Super) *Actor {
		desk := ask.New(super, false, l.Status)
		return New(l, look.New(l, false), desk, super, slog.New(slog.DiscardHandler))
	}
	on, off := actor(super), actor(nil)
	target := func(path, node string, token int64) string {
		return fmt.Sprintf(`{"path":%q,"node":%q,"token":"%d"}`, path, node, token)
	}
	good := target("/l", node, is.Czxid)
	dry := strings.Replace(good, "{", `{"dryRun":true,`, 1)
	for _, c := range []struct {
		by                              *Actor
		method, name, kind, login, body string
		token                           string
		code                            int
		says                            string
	}{
		{on, "GET", "break", json, login, good, on.Token(), 405, "use POST"},
		{on, "POST", "brake", json, login, good, on.Token(), 404, "there is no action"},
		{on, "POST", "break", "text/plain", login, good, on.Token(), 415, "application/json"},
		{on, "POST", "break", json, login, good, off.Token(), 403, "load the page again"},
		{on, "POST", "break", json, "", good, on.Token(), 401, "need the super user's password"},
		{on, "POST", "break", json, "digest super:2", good, on.Token(), 403, "not the super user's password"},
		{off, "POST", "break", json, login, good, off.Token(), 403, "actions are off"},
		{on, "POST", "break", json, login, `{"paht":"/l"}`, on.Token(), 400, "does not fit this action"},
		{on, "POST", "break", json, login, good + good, on.Token(), 400, "text follows"},
		{on, "POST", "break", json, login, good + "]", on.Token(), 400, "text follows"},
		{on, "POST", "break", json, login, target("l", node, 1), on.Token(), 400, "path must be"},
		{on, "POST", "ask", json, login, `{"path":"/l","token":"x"}`, on.Token(), 400, "token must be"},
		{on, "POST", "break", json, login, target("/none", node, 1), on.Token(), 404, "there is no node /none"},
		{on, "POST", "ask", json, login, target("/l", "other", 1), on.Token(), 404, "has no contender"},
		{on, "POST", "break", json, login, target("/l", node, is.Czxid+1), on.Token(), 409, "the token is old"},
		{on, "POST", "end-session", json, login, `{"session":"x"}`, on.Token(), 400, "session must be"},
		{on, "POST", "end-session", json, login, `{"session":"0x5"}`, on.Token(), 404, "there is no session 0x5"},
		{on, "POST", "break", json, login, dry, on.Token(), 200, "loses the lock"},
		{on, "POST", "break", json, login, dry + "\n", on.Token(), 200, "loses the lock"},
		{on, "POST", "break", json + ";charset=utf-8", login, good, on.Token(), 200, "loses the lock"},
	} {
		before := l.st.Zxid()
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, "/", strings.NewReader(c.body))
		r.SetPathValue("name", c.name)
		for name, value := range map[string]string{"Content-Type": c.kind, "Authorization": c.login,
			tokenHeader: c.token} {
			r.Header.Set(name, value)
		}
		c.by.Act(w, r)
		expect.Equal(t, w.Code, c.code, "%s %+v", c.method, c)
		expect.Has(t, w.Body.String(), c.says)
		expect.That(t, !strings.Contains(w.Body.String(), "host"), "a host that is not known: %s", w.Body)
		_, there := l.node("/l/" + node)
		done := c.code == 200 && c.body == good
		expect.Equal(t, there, !done, "%d: the node is there", c.code)
		expect.Equal(t, l.st.Zxid() != before, done, "%d: the state has changed", c.code)
	}
}
