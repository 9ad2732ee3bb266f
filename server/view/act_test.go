package view_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// do() asks for an action as the page does.
func (r *rig) do(code int, name, body string, change ...string) object {
	r.Helper()
	header := map[string]string{
		"Content-Type": "application/json", "Authorization": "digest super:test", "X-Zlockd-Token": r.get(200,
			"/overview")["token"].(string),
	}
	for i := 0; i < len(change); i += 2 {
		header[change[i]] = change[i+1]
	}
	a, b := r.request("POST", "/actions/"+name, header, body)
	var o object
	err := json.Unmarshal(b, &o)
	must.OK(r, err, "%s %s", name, body)
	must.Equal(r, a.StatusCode, code, "%s %s: status code", name, body)
	return o
}

func quoted(pairs ...string) string {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
		if pairs[i] == "dryRun" {
			m[pairs[i]] = true
		}
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func TestBreak(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	mine := r.lock(a, "/l")
	r.lock(b, "/l")
	r.lock(r.session(), "/l") // a third contender, which waits for b even if a loses the lock
	lock := r.get(200, "/locks/l")
	next := lock.list("waiters")[0]
	leaves := r.do(200, "break", quoted("path", "/l", "node", next["node"].(string), "token", next["token"].(string),
		"dryRun", "")).list("hits")
	if expect.Equal(t, len(leaves), 1, "of a waiter: number of leaves %v", leaves) {
		expect.Equal(t, leaves[0]["session"], any(sid(b)), "of a waiter: session")
		expect.Equal(t, leaves[0]["what"], "leaves the queue", "of a waiter: what")
	}
	h := lock.list("holders")[0]
	node, token := h["node"].(string), h["token"].(string)
	dry := r.do(200, "break", quoted("path", "/l", "node", node, "token", token, "dryRun", ""))
	hits := dry.list("hits")
	if expect.Equal(t, len(hits), 2, "number of hits %v", hits) {
		expect.Equal(t, hits[0]["session"], any(sid(a)), "session")
		expect.Equal(t, hits[1]["session"], any(sid(b)), "session")
		expect.Equal(t, hits[1]["what"], "gets the lock", "what")
	}
	there, _, err := a.Exists(mine)
	must.OK(t, err)
	must.That(t, there, "the dry run did it: %v", err)
	if e := r.do(409, "break", quoted("path", "/l", "node", node, "token", "12345"))["error"].(string); !strings.Contains(e, "the token is old") {
		t.Error(e)
	}
	r.do(200, "break", quoted("path", "/l", "node", node, "token", token))
	there, _, err = a.Exists(mine)
	expect.OK(t, err)
	expect.That(t, !there, "still there: %v", err)
	holders := r.get(200, "/locks/l").list("holders")
	if expect.Equal(t, len(holders), 1, "number of holders %v", holders) {
		expect.Equal(t, holders[0]["session"], any(sid(b)), "session")
	}
	r.do(404, "break", quoted("path", "/l", "node", node, "token", token))
	r.do(400, "break", quoted("path", "l", "node", node, "token", token))
	r.do(400, "break", quoted("path", "/l", "node", node, "token", "x"))
	r.do(400, "break", `{"pth":"/l"}`)
	r.do(404, "brake", "{}")
}

// TestActionsAreForTheSuperUser: a request without the password, or from a page of another site, changes
// nothing.
func TestActionsAreForTheSuperUser(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.lock(c, "/l")
	h := r.get(200, "/locks/l").list("holders")[0]
	body := quoted("path", "/l", "node", h["node"].(string), "token", h["token"].(string))
	r.do(403, "break", body, "Authorization", "digest super:wrong")
	r.do(403, "break", body, "Authorization", "digest bob:test")
	r.do(401, "break", body, "Authorization", "")
	r.do(401, "break", body, "Authorization", "Basic c3VwZXI6dGVzdA==")
	r.do(403, "break", body, "X-Zlockd-Token", "")
	r.do(403, "break", body, "X-Zlockd-Token", "0123456789abcdef0123456789abcdef")
	r.do(415, "break", body, "Content-Type", "text/plain")
	r.do(421, "break", body, "Host", "evil.example")
	a, _ := r.request("GET", "/actions/break", nil, "")
	expect.Equal(t, a.StatusCode, 405, "GET: %s", a.Status)
	expect.Equal(t, len(r.get(200, "/locks/l").list("holders")), 1, "it was done all the same")
}

func TestAsk(t *testing.T) {
	r := newRig(t)
	c := r.session()
	ours := r.node(c, "/l/lock-", `{"v":1,"host":"web","future":[1,2]}`, zk.FlagEphemeral|zk.FlagSequence)
	h := r.get(200, "/locks/l").list("holders")[0]
	body := quoted("path", "/l", "node", h["node"].(string), "token", h["token"].(string), "reason", "deploy")
	r.do(200, "ask", body)
	data, _, err := c.Get(ours)
	expect.OK(t, err)
	expect.Equal(t, string(data),
		`{"future":[1,2],"host":"web","revoke":{"by":"operator","reason":"deploy"},"v":1}`, "data")
	expect.Equal(t, r.get(200, "/locks/l").list("holders")[0]["asked"], true)
	r.do(409, "ask", body) // the second time is refused
	curators := r.node(c, "/c/_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-", "10.0.0.1", zk.FlagEphemeral|zk.FlagSequence)
	h = r.get(200, "/locks/c").list("holders")[0]
	r.do(200, "ask", quoted("path", "/c", "node", h["node"].(string), "token", h["token"].(string)))
	data, _, err = c.Get(curators)
	expect.OK(t, err)
	expect.Equal(t, string(data), "__REVOKE__", "data")
	r.node(c, "/k/f65a711639a74cab9e5222dd97208501__lock__", "me", zk.FlagEphemeral|zk.FlagSequence)
	h = r.get(200, "/locks/k").list("holders")[0]
	if e := r.do(409, "ask", quoted("path", "/k", "node", h["node"].(string), "token", h["token"].(string)))["error"].(string); !strings.Contains(e, "kazoo") {
		t.Error(e)
	}
}

func TestEndSession(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	r.lock(a, "/l")
	r.lock(b, "/l")
	r.lock(b, "/others") // b keeps this lock
	r.eventually("/sessions/"+sid(b), func(o object) bool { return len(o.list("holds")) == 1 })
	id := sid(a)
	r.eventually("/sessions/"+id, func(o object) bool { return len(o.list("holds")) == 1 })
	dry := r.do(200, "end-session", quoted("session", id, "dryRun", ""))
	h := dry.list("hits")
	if expect.Equal(t, len(h), 2, "number of hits %v", h) {
		expect.Has(t, h[0]["what"].(string), "1 ephemeral node", "what")
		expect.Equal(t, h[1]["what"], "loses /l", "what")
	}
	r.get(200, "/sessions/"+id)
	r.do(200, "end-session", quoted("session", id))
	r.get(404, "/sessions/"+id)
	r.do(404, "end-session", quoted("session", id))
	r.do(400, "end-session", quoted("session", "x"))
	h = r.get(200, "/locks/l").list("holders")
	if expect.Equal(t, len(h), 1, "number of holders %v", h) {
		expect.Equal(t, h[0]["session"], any(sid(b)), "session")
	}
	e := r.get(200, "/sessions/ended?cause=operator").list("sessions")
	if expect.Equal(t, len(e), 1, "number of ended sessions %v", e) {
		expect.Equal(t, e[0]["id"], any(id), "id")
		expect.Equal(t, e[0]["reason"], "ended by an operator", "reason")
	}
	// The operator's own sessions leave nothing behind.
	expect.Equal(t, r.get(200, "/sessions?addr=operator")["total"], 0.0)
}

func TestWhatCannotBeDoneAlone(t *testing.T) {
	r := newRig(t)
	r.do(409, "hand-over", "{}")
	r.do(409, "snapshot", "{}")
}
