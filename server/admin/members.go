package admin

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// maxChange bounds the body of a change.
const maxChange = 4 << 10

// serveMembers tells who belongs to the ensemble and how far each is, and
// changes it. It is what zlock member asks; /commands/voting_view knows those
// with a vote only.
func (a *Admin) serveMembers(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		a.listMembers(w, r)
		return
	}
	code, problem := a.mayChange(w, r)
	var found *Progress
	if problem == "" {
		code, found, problem = a.changeMember(w, r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	j := &jsonWriter{w: bufio.NewWriter(w)}
	j.beginObject()
	j.field("v", 1)
	if problem == "" {
		j.field("error", nil)
	} else {
		j.field("error", problem)
	}
	if found != nil {
		j.progress(found)
		j.field("at", found.At)
		j.field("known", found.Known)
	}
	j.endObject()
	_ = j.w.Flush()
}

// changeMember makes a change, or for the operation check looks whether one
// could be made.
func (a *Admin) changeMember(w http.ResponseWriter, r *http.Request) (code int, found *Progress, problem string) {
	var c state.MemberChange
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return http.StatusBadRequest, nil, `want {"op": "add", "id": 4, "addr": "HOST:PORT"}, or op promote, remove or lead and an id`
	}
	if c.Op == "check" {
		p, err := a.source.Probe(r.Context(), c.ID, c.Addr)
		if err != nil {
			return http.StatusConflict, nil, err.Error()
		}
		return http.StatusOK, &p, ""
	}
	if err := a.source.ChangeMember(r.Context(), c); err != nil {
		return http.StatusConflict, nil, err.Error()
	}
	a.log.Info("members changed", "op", c.Op, "peer", c.ID)
	return http.StatusOK, nil, ""
}

// listMembers writes the members by id: all of them as far as this server
// knows, none if it runs alone.
func (a *Admin) listMembers(w http.ResponseWriter, r *http.Request) {
	s := a.source.Status(0)
	var progress map[int64]Progress
	if len(s.Members) > 0 {
		if release, ok := a.asks.acquire(); ok { // else the list is without it
			progress = a.source.Progress(r.Context())
			release()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	j := &jsonWriter{w: bufio.NewWriter(w)}
	j.beginObject()
	j.field("v", 1)
	j.field("id", s.ID)
	j.field("leader", s.LeaderID)
	j.field("cluster", s.Cluster)
	j.object("members", func() {
		for _, m := range s.Members {
			j.object(strconv.FormatInt(m.ID, 10), func() {
				j.field("peer", m.PeerAddr)
				j.field("client", m.ClientAddr)
				j.field("voter", m.Voter)
				if p, ok := progress[m.ID]; ok {
					j.progress(&p)
				}
			})
		}
	})
	j.endObject()
	_ = j.w.Flush()
}

// progress writes the fields of a Progress; what is not known is null.
func (j *jsonWriter) progress(p *Progress) {
	j.field("applied", int64(p.Applied))
	j.field("lag", int64(p.Lag))
	if p.Bytes < 0 {
		j.field("lag_bytes", nil)
	} else {
		j.field("lag_bytes", p.Bytes)
	}
	if p.Heard < 0 {
		j.field("heard_ms", nil)
	} else {
		j.field("heard_ms", p.Heard.Milliseconds())
	}
	j.field("version", p.Release)
	j.field("starts", int64(p.Starts))
	j.field("snapshot_sent", p.SnapshotSent)
	j.field("snapshot_size", p.SnapshotSize)
	j.field("waits", p.Waits)
}
