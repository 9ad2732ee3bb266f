package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/members"
)

// maxChange is the most bytes that the body of a request to change the members may have.
const maxChange = 4 << 10

// serveMembers lists the members with their progress, and changes the members. zlock member uses this page,
// because /commands/voting_view lists only voters.
func (a *Admin) serveMembers(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		answerStruct(w, http.StatusOK, a.members(r.Context()))
		return
	}
	var done changed
	var job change.Job
	var code int
	switch no := a.mayChange(w, r); {
	case no != nil:
		done.fail(status.With(status.NotAllowed, no))
		code = no.Status
	case port.ReadJSON(w, r, maxChange, &job) != nil:
		done.fail(errors.New(`want {"op": "add", "id": 4, "addr": "HOST:PORT"}, ` +
			`or op promote, remove or lead and an id`))
		code = http.StatusBadRequest
	case job.Wait:
		a.runJob(w, r, job)
		return
	default:
		code = a.changeMember(r.Context(), job, &done)
	}
	done.V = 1
	answerStruct(w, code, &done)
}

// stepAgain is how often the server reports a step that takes long, so that the caller sees that the server
// is alive.
const stepAgain = time.Second

// lineTime is how long the client may take to read a line of the answer.
const lineTime = 5 * time.Second

// runJob runs a job to its end. It writes a line for each step.
func (a *Admin) runJob(w http.ResponseWriter, r *http.Request, j change.Job) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // ignore the error: only a test's writer has no deadlines
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	send := func(s change.Step) {
		_ = c.SetWriteDeadline(time.Now().Add(lineTime))
		if lines.Encode(s) == nil {
			_ = c.Flush()
		}
	}
	send(change.Step{Kind: "started"}) // tell the client at once: the first step may take a while
	var last change.Step
	var told time.Time
	err := members.Run(r.Context(), a.o.Source, j, func(s change.Step) {
		if s != last || time.Since(told) >= stepAgain {
			last, told = s, time.Now()
			send(s)
		}
	})
	send(change.Step{Done: true, Failure: status.Failed(err)})
}

// changed is the answer to a request that makes a change, or only checks whether it is possible.
type changed struct {
	V     int         `json:"v"`
	Error *string     `json:"error"`
	Code  status.Code `json:"code,omitempty"`
	*status.Found
}

func (c *changed) fail(err error) {
	text := err.Error()
	c.Error, c.Code = &text, status.Of(err)
}

// changeMember makes a change. If the operation is Check, it only finds out whether the change is possible.
func (a *Admin) changeMember(ctx context.Context, j change.Job, done *changed) (code int) {
	var err error
	if j.Op == change.Check {
		done.Found, err = a.o.Source.Probe(ctx, j.ID, j.Addr)
	} else {
		err = a.o.Source.ChangeMember(ctx, change.Change{Op: j.Op, ID: j.ID, Addr: j.Addr})
	}
	if err != nil {
		done.fail(err)
		return http.StatusConflict
	}
	return http.StatusOK
}

// members lists all members that this server knows. The list is empty if the server runs alone.
func (a *Admin) members(ctx context.Context) *status.Members {
	s := a.o.Source.Status(0)
	list := &status.Members{ID: s.ID, Leader: s.Leader, Cluster: s.Cluster}
	if len(s.Members) > 0 {
		if release, ok := a.asks.Acquire(); ok { // if not, answer from what this server knows by itself
			list, _ = a.o.Source.Members(ctx) // ignore the error: without a leader, there is still a list
			release()
		}
	}
	if list.V = 1; !s.Serving {
		list.Reason = s.Reason
	}
	if len(list.Members) == 0 {
		list.Members = map[uint32]status.Member{}
		for _, m := range s.Members {
			list.Members[m.ID] = m
		}
	}
	return list
}
