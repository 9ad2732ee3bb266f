// Package act carries out the actions of operators on a server's page. It checks the user, plans the action,
// and names the clients that it affects. An action about a lock hits the contender that the operator saw, or
// none.
package act

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/session"
)

// tokenHeader is the header in which a request sends the page's token. A page of another site cannot read the
// token, so it cannot act.
const tokenHeader = "X-Zlockd-Token"

// Actor carries out what operators ask for on the page. Any goroutine may use it.
type Actor struct {
	source    Source
	look      *look.Looker
	desk      *ask.Desk
	authorize port.Super // checks whether a user may act; nil: no user may
	log       *slog.Logger
	token     string // the page contains this token, and an action must send it
}

// New returns an actor with a new token. The log receives each action.
func New(from Source, l *look.Looker, d *ask.Desk, authorize port.Super, log *slog.Logger) *Actor {
	var token [16]byte
	rand.Read(token[:]) // never fails
	return &Actor{source: from, look: l, desk: d, authorize: authorize, log: log,
		token: hex.EncodeToString(token[:])}
}

// Token returns the token that actions must send.
func (x *Actor) Token() string { return x.token }

// Ready reports whether there are users that may act.
func (x *Actor) Ready() bool { return x.authorize != nil }

// action is an operator's request.
type action struct {
	Path    string `json:"path,omitempty"`    // path of a lock
	Node    string `json:"node,omitempty"`    // node of a contender, relative to Path
	Token   string `json:"token,omitempty"`   // token of the contender
	Session string `json:"session,omitempty"` // session that must end
	Reason  string `json:"reason,omitempty"`  // text for the contender that is asked for its lock
	DryRun  bool   `json:"dryRun,omitempty"`
}

// step is a planned action: its description and the function that runs it.
type step struct {
	does string
	hits []answer.Hit
	do   func(context.Context) error
}

const (
	actTime = 15 * time.Second
	maxAct  = 16 << 10
)

// Act answers /actions/NAME.
func (x *Actor) Act(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	plans := map[string]func(context.Context, *action) (*step, error){
		"ask": x.planAsk, "break": x.planBreak, "end-session": x.planEnd, "hand-over": x.planHandOver,
		"snapshot": x.planSnapshot,
	}
	plan, known := plans[name]
	if !known {
		x.desk.Fail(w, ask.NotFound("there is no action %q; the actions are ask, break, end-session, "+
			"hand-over and snapshot", ask.Shown(name)))
		return
	}
	user, err := x.mayAct(w, r)
	if err != nil {
		x.desk.Fail(w, err)
		return
	}
	var a action
	if err = port.ReadJSON(w, r, maxAct, &a); err != nil {
		x.desk.Fail(w, ask.BadRequest("the body does not fit this action: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	s, err := plan(ctx, &a)
	if err == nil && !a.DryRun {
		err = s.do(ctx)
		x.log.Info("operator's action", "action", name, "user", user, "from", r.RemoteAddr, "does", s.does, "err",
			err)
	}
	if err != nil {
		x.desk.Fail(w, err)
		return
	}
	if s.hits == nil {
		s.hits = []answer.Hit{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer.Done{V: ask.Version, Action: name, DryRun: a.DryRun, Does: s.does,
		Hits: s.hits})
}

// mayAct checks whether a request may change anything: it must be a POST of JSON with the token
// of the page and the super user's password.
func (x *Actor) mayAct(w http.ResponseWriter, r *http.Request) (user string, err error) {
	if no := port.Posts(w, r); no != nil {
		return "", no
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return "", port.Refuse(http.StatusUnsupportedMediaType, "the body of an action is application/json")
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(x.token)) != 1 {
		return "", port.Refuse(http.StatusForbidden,
			"the token of the page is missing or old: load the page again")
	}
	user, no := x.authorize.User(r, "actions are off")
	switch {
	case no == nil:
		return user, nil
	case no.Status == http.StatusUnauthorized:
		no.Text = "actions need the super user's password: Authorization: digest USER:PASSWORD"
	case x.authorize != nil:
		no.Text = "this is not the super user's password"
	}
	return "", no
}

// target() finds the contender that an action concerns. It refuses the action if the contender does not have
// the token that the operator saw: then the lock has changed hands.
func (x *Actor) target(ctx context.Context, a *action) (*recipe.Queue, *recipe.Entry, error) {
	if !strings.HasPrefix(a.Path, "/") {
		return nil, nil, ask.BadRequest("path must be the path of a lock")
	}
	token, err := strconv.ParseInt(a.Token, 10, 64)
	if err != nil {
		return nil, nil, ask.BadRequest("token must be a number: the token of the contender")
	}
	q, _, err := x.look.At(ctx, a.Path)
	if err != nil {
		return nil, nil, err
	}
	c := q.Find(a.Node)
	switch {
	case c == nil || c.Token == 0:
		return nil, nil, ask.NotFound("%s has no contender %q any more", ask.Shown(a.Path), ask.Shown(a.Node))
	case c.Token != token:
		return nil, nil, ask.Conflict("the token is old: %q has the token %d, not %d", ask.Shown(a.Node),
			c.Token, token)
	}
	return &q, c, nil
}

func (x *Actor) hitOf(c *recipe.Entry, what string) answer.Hit {
	id := int64(c.Session)
	addr := x.look.Sessions(map[int64]bool{id: true})[id].Addr
	h := answer.Hit{Session: report.Hex(id), What: what, Addr: addr}
	if o, ok := c.Record(); ok && o.Host != "" {
		h.Host = fmt.Sprintf("%s[%d]", ask.Shown(o.Host), o.PID)
	}
	return h
}

// planBreak removes a contender's node.
func (x *Actor) planBreak(ctx context.Context, a *action) (*step, error) {
	q, c, err := x.target(ctx, a)
	if err != nil {
		return nil, err
	}
	target := q.Target(c.Node)
	s := &step{does: "remove " + ask.Shown(target)}
	switch {
	case q.Holds(c.Node):
		s.hits = append(s.hits, x.hitOf(c, "loses the lock but may go on working: check its token where it writes"))
		next := freed(q, c.Node)
		for _, w := range next[:min(len(next), 9)] {
			s.hits = append(s.hits, x.hitOf(w, "gets the lock"))
		}
	case c.Mode == recipe.Participant:
		s.hits = append(s.hits, x.hitOf(c, "is no longer a participant"))
	default:
		s.hits = append(s.hits, x.hitOf(c, "leaves the queue"))
	}
	body := jute.AppendInt(jute.AppendString(nil, target), c.Version)
	if c.Place != "" { // also delete the contender's node in the queue: a client that hangs would leave it there
		place := q.Target(c.Place)
		s.does += " and " + ask.Shown(place)
		body = jute.AppendMultiHeader(body, jute.OpDelete, false, -1)
		body = jute.AppendInt(jute.AppendString(body, place), -1)
	}
	s.do = func(ctx context.Context) error { return edit(ctx, x.source, q, c, jute.OpDelete, body) }
	return s, nil
}

// planAsk plans to ask a contender for its lock: a text from the operator goes into the contender's node.
func (x *Actor) planAsk(ctx context.Context, a *action) (*step, error) {
	q, c, err := x.target(ctx, a)
	if err != nil {
		return nil, err
	}
	if _, asked := c.Asked(); asked {
		return nil, ask.Conflict("this contender has been asked already")
	}
	if !c.Askable() {
		return nil, ask.Conflict("the program that made this node (%s) cannot be asked", c.Maker)
	}
	record := string(recipe.AskBack(c.Raw(), c.Maker, recipe.Revocation{By: "operator", Reason: a.Reason}))
	target := q.Target(c.Node)
	body := jute.AppendString(jute.AppendString(nil, target), record)
	body = jute.AppendInt(body, c.Version)
	return &step{
		does: "ask for " + ask.Shown(q.Path) + " back from " + ask.Shown(c.Node),
		hits: []answer.Hit{x.hitOf(c, "is asked to release the lock, and may refuse")},
		do:   func(ctx context.Context) error { return edit(ctx, x.source, q, c, jute.OpSetData, body) },
	}, nil
}

// freed() returns the waiters that may get the lock when the node of a holder is removed. There may be
// several: some can hold the lock together, and others compete because each waits only for any one of the
// holders.
func freed(q *recipe.Queue, node string) (list []*recipe.Entry) {
	for i := range q.Waiters {
		w := &q.Waiters[i]
		if len(w.BlockedBy) == 1 && w.BlockedBy[0] == node || w.Any && slices.Contains(w.BlockedBy, node) {
			list = append(list, w)
		}
	}
	alone := func(w *recipe.Entry) bool { return w.Mode == recipe.Exclusive && !w.Watch }
	first := slices.IndexFunc(list, alone)
	shared := slices.DeleteFunc(slices.Clone(list), alone)
	switch {
	case first < 0, q.Policy == recipe.PolicyReader.String() && len(shared) > 0:
		return shared
	case first == 0, q.Policy == recipe.PolicyWriter.String():
		return list[first : first+1]
	}
	return list[:first]
}

// planEnd ends a session.
func (x *Actor) planEnd(ctx context.Context, a *action) (*step, error) {
	id, ok := ask.ParseSession(a.Session)
	if !ok {
		return nil, ask.BadRequest("session must be an id such as 0x100000ae0210023")
	}
	var s session.Session
	nodes := 0
	if !x.source.View(func(st *state.State) {
		s, ok = st.Sessions().Get(id)
		nodes = st.Tree().EphemeralsIn(id)
	}) {
		return nil, ask.ErrNotServing
	}
	if !ok {
		return nil, ask.NotFound("there is no session %s", report.Hex(id))
	}
	step := &step{does: "end session " + report.Hex(id)}
	step.hits = append(step.hits, answer.Hit{Session: report.Hex(id), Addr: s.Addr,
		What: fmt.Sprintf("loses its session and %d ephemeral nodes", nodes)})
	scan, err := x.look.Locks(ctx)
	if err != nil {
		return nil, err
	}
	for i := range scan.Locks {
		q := &scan.Locks[i]
		for j := range q.Holders {
			if c := &q.Holders[j]; int64(c.Session) == id && len(step.hits) < 50 {
				step.hits = append(step.hits, x.hitOf(c, "loses "+ask.Shown(q.Path)))
			}
		}
	}
	step.do = func(ctx context.Context) error {
		if _, err := x.source.Do(ctx, state.End(id, s.Gen, state.EndOperator)); err != nil {
			return err
		}
		still := false
		x.source.View(func(st *state.State) { _, still = st.Sessions().Get(id) })
		if still {
			return ask.Conflict("the client has reconnected: reload and try again")
		}
		return nil
	}
	return step, nil
}

func (x *Actor) planHandOver(context.Context, *action) (*step, error) {
	s := x.source.Status(0)
	switch {
	case len(s.Members) < 2:
		return nil, ask.Conflict("this server runs alone: there is no other server to lead")
	case s.Leader == 0:
		return nil, ask.Conflict("no server leads at the moment")
	case s.Leader != s.ID:
		return nil, ask.Conflict("this server does not lead; ask server %d", s.Leader)
	}
	return &step{
		does: "hand over leadership to the follower with the longest log",
		hits: []answer.Hit{{What: "all writes wait a moment; no session ends, and no client is disconnected"}},
		do: func(ctx context.Context) error {
			if err := x.source.HandOver(ctx); err != nil {
				return ask.Conflict("leadership was not handed over: %v", err)
			}
			return nil
		},
	}, nil
}

func (x *Actor) planSnapshot(context.Context, *action) (*step, error) {
	if x.source.Status(0).Config.DataDir == "" {
		return nil, ask.Conflict("this server keeps everything in memory (--dev)")
	}
	return &step{
		does: "write a snapshot of this server's state to its disk",
		do: func(context.Context) error {
			if err := x.source.TakeSnapshot(); err != nil {
				return ask.Conflict("no snapshot was written: %v", err)
			}
			return nil
		},
	}, nil
}
