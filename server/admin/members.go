package admin

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
)

// maxChange bounds the body of a change.
const maxChange = 4 << 10

// serveMembers tells who belongs to the ensemble, and changes it. It is what
// zlock member asks; /commands/voting_view knows those with a vote only.
func (a *Admin) serveMembers(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		a.listMembers(w)
		return
	}
	code, problem := a.mayChange(w, r)
	if problem == "" {
		code, problem = a.changeMember(w, r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	j := &jsonWriter{w: bufio.NewWriter(w)}
	j.beginObject()
	if problem == "" {
		j.field("error", nil)
	} else {
		j.field("error", problem)
	}
	j.endObject()
	j.w.Flush()
}

func (a *Admin) changeMember(w http.ResponseWriter, r *http.Request) (code int, problem string) {
	var c MemberChange
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return http.StatusBadRequest, `want {"op": "add", "id": 4, "addr": "HOST:PORT"}, or op promote or remove and an id`
	}
	if err := a.source.ChangeMember(r.Context(), c); err != nil {
		return http.StatusConflict, err.Error()
	}
	a.log.Info("members changed", "op", c.Op, "peer", c.ID)
	return http.StatusOK, ""
}

// listMembers writes the members by id: all of them as far as this server
// knows, none if it runs alone.
func (a *Admin) listMembers(w http.ResponseWriter) {
	s := a.source.Status(0)
	w.Header().Set("Content-Type", "application/json")
	j := &jsonWriter{w: bufio.NewWriter(w)}
	j.beginObject()
	j.field("id", s.ID)
	j.field("leader", s.LeaderID)
	j.object("members", func() {
		for _, m := range s.Members {
			j.object(strconv.FormatInt(m.ID, 10), func() {
				j.field("peer", m.PeerAddr)
				j.field("client", m.ClientAddr)
				j.field("voter", m.Voter)
			})
		}
	})
	j.endObject()
	j.w.Flush()
}
