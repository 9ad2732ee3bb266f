package tickets

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/session"
)

// Request is a caller's request.
type Request struct {
	Identity
	Secret  session.Hash
	Path    string
	Addr    string    // the caller's address, without its port
	Arrived time.Time // when the request arrived

	Mode        byte
	ModeGiven   bool
	Permits     int // number of permits; 0: not given in the request
	Limit       int // the number of permits that a new semaphore gets; 0: not given in the request
	Layout      recipe.Layout
	TTL         time.Duration // the ticket's timeout; 0: not given in the request
	Wait        time.Duration
	Try         bool // take the lock only if it is free, and do not wait for it
	Until       time.Time
	Reason, Who string

	Draws, Looks bool          // whether to draw from a rate of Limit draws in Per, or only to look at it
	Per          time.Duration // time of the rate; 0: not given in the request

	IfMatch, IfNoneMatch string

	seen   int     // how many nodes the server has read to answer
	tokens *Tokens // the tokens by which the server identified the caller
}

// Modes of tickets. The state stores these numbers.
const (
	exclusive byte = 1 + iota
	shared
	permit
)

// newID returns the id of a new node.
func newID() recipe.ID {
	var r [16]byte
	_, _ = rand.Read(r[:]) // rand.Read never fails
	return recipe.NewID(int64(binary.BigEndian.Uint64(r[:])), binary.BigEndian.Uint64(r[8:]))
}

// permits() returns how many permits the request asks for. It returns 0 if the request asks for a lock.
func (q *Request) permits() int {
	if q.Mode != permit {
		return 0
	}
	return max(q.Permits, 1)
}

func (q *Request) ttl() time.Duration {
	if q.TTL == 0 {
		return DefaultTTL
	}
	return q.TTL
}

func number(name, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s %.40q: want a number from 1 to %d", name, value, most)
	}
	return n, nil
}

func duration(name, value string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s %.40q: want a time from %v to %v, such as 60s or 9m", name, value, least, most)
	}
	return d, nil
}

// text() refuses a value that cannot be shown to other clients.
func text(name, value string) error {
	if len(value) > maxText {
		return fmt.Errorf("%s has %d bytes, and at most %d are allowed", name, len(value), maxText)
	}
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if !utf8.ValidString(value) || strings.ContainsFunc(value, hidden) {
		return fmt.Errorf("%s has a character that cannot be shown", name)
	}
	return nil
}
