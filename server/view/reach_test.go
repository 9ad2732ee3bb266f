package view_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/view"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// three is a server of three, one of which is gone.
type three struct {
	*still
	asked chan struct{} // has an entry for each question; full: the answer does not come
}

func (s *three) Status(admin.Need) *admin.Status {
	st := s.still.Status(0)
	st.ID, st.Leader = 1, 1
	for id := uint32(1); id <= 3; id++ {
		st.Members = append(st.Members, status.Member{ID: id, Peer: "10.0.0.1:2888", Voter: true})
	}
	return st
}

func (s *three) Members(ctx context.Context) (*status.Members, error) {
	select {
	case s.asked <- struct{}{}:
		return &status.Members{Members: map[uint32]status.Member{
			1: {Progress: status.Progress{Heard: status.Ago(0)}}, 2: {Progress: status.Progress{Heard: status.Ago(0),
				Lag: 7}},
			3: {Progress: status.Progress{Lag: 99, Waits: "connection refused"}},
		}}, nil
	case <-ctx.Done():
		return new(status.Members), ctx.Err()
	}
}

// TestAMemberThatIsGoneIsNoFollower: the overview says who is not reached, and
// why, and is there also where that cannot be found out.
func TestAMemberThatIsGoneIsNoFollower(t *testing.T) {
	s := &three{&still{st: state.New("three")}, make(chan struct{}, 1)}
	v := view.New(view.Options{Source: s})
	defer v.Close()
	pages := v.Pages()
	ask := func(path string) string {
		w := httptest.NewRecorder()
		pages[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
		return w.Body.String()
	}
	var o struct {
		Members []struct {
			Reached *bool
			Lag     uint64
			Waits   string
		}
	}
	must.OK(t, json.Unmarshal([]byte(ask("/overview")), &o))
	m := o.Members
	if len(m) != 3 || !*m[0].Reached || !*m[1].Reached || m[1].Lag != 7 || *m[2].Reached || m[2].Lag != 0 ||
		m[2].Waits != "connection refused" {
		t.Errorf("%+v", m)
	}
	page := ask("/{$}")
	for _, want := range []string{"<td>leader</td><td>caught up</td>",
		"<td>follower</td><td>7 entries behind</td>",
		`<td>voter</td><td><strong class="bad">not reached</strong>: connection refused</td>`} {
		expect.Has(t, page, want, "the page lacks")
	}
}

// TestMembersThatAnswerLateHoldNobodyUp: nor do they make the page lie.
func TestMembersThatAnswerLateHoldNobodyUp(t *testing.T) {
	s := &three{&still{st: state.New("three")}, make(chan struct{})}
	v := view.New(view.Options{Source: s})
	defer v.Close()
	w := httptest.NewRecorder()
	v.Pages()["/{$}"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
	expect.Equal(t, strings.Count(w.Body.String(), "<td>not known</td>"), 3, "of 3 members")
}

func (s *three) BusyPaths() (map[string]observe.Count, time.Duration) { return nil, 0 }
func (s *three) GoneClients() map[string]observe.Count                { return nil }
