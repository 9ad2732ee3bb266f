package tickets

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// Answer is the answer to a request.
type Answer struct {
	Code  int
	ETag  string
	Retry time.Duration // the header Retry-After; 0: the answer has no such header
	Body  any           // nil: the answer has no body
}

type heldBody struct {
	V         int    `json:"v"`
	Held      bool   `json:"held"`
	Token     string `json:"token"`
	Sequencer string `json:"sequencer"`
	TTL       int64  `json:"ttlMs"`
	Safe      int64  `json:"safeMs"`
	Slots     []int  `json:"slots,omitempty"`
	NoSlots   string `json:"noSlots,omitempty"` // why the caller must not rely on the numbers in Slots
	Asked     *asked `json:"asked"`
}

type asked struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

type queuedBody struct {
	V        int     `json:"v"`
	Held     bool    `json:"held"`
	Position int     `json:"position"`
	Of       int     `json:"of"`
	TTL      int64   `json:"ttlMs"`
	Behind   *Holder `json:"behind,omitempty"`
}

type failure struct {
	V      int     `json:"v"`
	Error  string  `json:"error"`
	Text   string  `json:"text"`
	Behind *Holder `json:"behind,omitempty"`
	Retry  int64   `json:"retryMs,omitempty"` // in how many ms the next draw is free
}

func fail(code int, word, format string, args ...any) *Answer {
	a := &Answer{Code: code, Body: &failure{V: 1, Error: word, Text: fmt.Sprintf(format, args...)}}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		a.Retry = time.Second
	}
	return a
}

func unavailable(err error) *Answer {
	return fail(http.StatusServiceUnavailable, "unavailable", "%v", err)
}

// The table words maps the end of a ticket to its name in answers.
var words = map[session.TicketEnd]string{session.TicketGiven: "given", session.TicketExpired: "expired",
	session.TicketRevoked: "revoked", session.TicketRemoved: "removed", session.TicketEnded: "ended"}

// refusal() returns the answer for a ticket that the server could not open.
func refusal(out *state.Outcome) *Answer {
	if out.Divided {
		return notHere(recipe.ErrMixedLayout)
	}
	switch out.Code {
	case jute.QuotaExceeded:
		if len(out.Reply) > 0 {
			return fail(http.StatusTooManyRequests, "limit", "%s", out.Reply)
		}
		return fail(http.StatusTooManyRequests, "limit", "a quota of the path is used up")
	case jute.NoAuth:
		return fail(http.StatusForbidden, "forbidden", "the access rights of the path refuse this identity")
	case jute.Throttled:
		return fail(http.StatusServiceUnavailable, "full", "a server's disk is nearly full, or the path is "+
			"full")
	}
	return fail(http.StatusBadRequest, "path", "this path cannot have a contender: %v", out.Code)
}

// notHere returns the answer for a request that does not fit the lock: it asks for another kind of lock, or
// for more permits than the semaphore has.
func notHere(err error) *Answer {
	if errors.Is(err, errLimit) {
		return fail(http.StatusConflict, "limit", "%v", err)
	}
	return fail(http.StatusConflict, "mixed", "%v", err)
}

// errLimit is the error of a request that a semaphore's number of permits does not allow.
var errLimit = errors.New("the number of permits")
