package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// maxChange bounds the body of a change.
const maxChange = 4 << 10

// serveMembers tells who belongs to the ensemble and how far each is, and
// changes it. It is what zlock member asks; /commands/voting_view knows those
// with a vote only.
func (a *Admin) serveMembers(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		writeObject(w, http.StatusOK, a.members(r.Context()))
		return
	}
	var done changed
	code, problem := a.mayChange(w, r)
	if problem != "" {
		done.fail(status.Errorf(status.NotAllowed, "%s", problem))
	} else {
		code = a.changeMember(w, r, &done)
	}
	done.V = 1
	writeObject(w, code, &done)
}

// changed is the answer to a change, or to the operation check.
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

// changeMember makes a change, or for the operation check looks whether one
// could be made.
func (a *Admin) changeMember(w http.ResponseWriter, r *http.Request, done *changed) (code int) {
	var c state.MemberChange
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		done.fail(errors.New(`want {"op": "add", "id": 4, "addr": "HOST:PORT"}, or op promote, remove or lead and an id`))
		return http.StatusBadRequest
	}
	var err error
	if c.Op == "check" {
		done.Found, err = a.source.Probe(r.Context(), c.ID, c.Addr)
	} else {
		err = a.source.ChangeMember(r.Context(), c)
	}
	if err != nil {
		done.fail(err)
		return http.StatusConflict
	}
	if c.Op != "check" {
		a.log.Info("members changed", "op", c.Op, "peer", c.ID)
	}
	return http.StatusOK
}

// members lists the members: all of them as far as this server knows, none if it
// runs alone.
func (a *Admin) members(ctx context.Context) *status.Members {
	s := a.source.Status(0)
	list := &status.Members{V: 1, ID: s.ID, Leader: s.Leader, Cluster: s.Cluster, Members: map[uint32]status.Member{}}
	if !s.Serving {
		list.Reason = s.Reason
	}
	if len(s.Members) == 0 {
		return list
	}
	if release, ok := a.asks.acquire(); ok { // else the list tells what this server knows
		list.Members = a.source.Progress(ctx)
		release()
	}
	if len(list.Members) == 0 {
		list.Members = map[uint32]status.Member{}
		for _, m := range s.Members {
			list.Members[m.ID] = m
		}
	}
	return list
}
