package view

import (
	"context"
	"errors"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
)

// steps is a Source that answers the requests of one action.
type steps struct {
	Source
	at    int
	errs  [3]error
	write state.Outcome
}

func (s *steps) Status(admin.Need) *admin.Status { return &admin.Status{} }

func (s *steps) Do(context.Context, state.Request) (state.Outcome, error) {
	s.at++
	if s.at == 2 {
		return s.write, s.errs[1]
	}
	return state.Outcome{}, s.errs[s.at-1]
}

// An action fails with the first of its steps that fails: its session, the write, or the
// end of the session; and the session is ended whatever becomes of the write.
func TestAnActionFailsWithItsFirstStep(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	for name, c := range map[string]struct {
		errs  [3]error
		write state.Outcome
		want  error
		steps int
	}{
		"no session":  {[3]error{one, nil, nil}, state.Outcome{}, one, 1},
		"no write":    {[3]error{nil, two, nil}, state.Outcome{}, two, 3},
		"neither":     {[3]error{nil, two, three}, state.Outcome{}, two, 3},
		"no end":      {[3]error{nil, nil, three}, state.Outcome{}, three, 3},
		"all is done": {[3]error{}, state.Outcome{}, nil, 3},
	} {
		s := &steps{errs: c.errs, write: c.write}
		if err := (&View{source: s}).write(t.Context(), jute.OpDelete, nil); !errors.Is(err, c.want) ||
			s.at != c.steps {
			t.Errorf("%s: %v after %d steps", name, err, s.at)
		}
	}
	for code, want := range map[jute.ErrCode]int{jute.BadVersion: 409, jute.NoNode: 404} {
		var p *admin.Refusal
		if err := (&View{source: &steps{write: state.Outcome{Code: code}}}).write(t.Context(), jute.OpDelete,
			nil); !errors.As(err, &p) || p.Status != want {
			t.Errorf("%v: %v", code, err)
		}
	}
	if err := (&View{source: &steps{write: state.Outcome{Code: jute.NotEmpty}}}).write(t.Context(),
		jute.OpDelete, nil); err == nil {
		t.Error("a refusal is a success")
	}
}
