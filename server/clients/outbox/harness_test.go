package outbox

import (
	"testing"

	"github.com/zlockd/zlockd/server/clients/budget"
)

type conn = Stub

// connOf returns a connection that has an address of its own.
func connOf(s *Shared) *conn { return NewStub(s, new(budget.Account)) }

// quiet() returns what outboxes share in a server that does nothing, and a connection. A bound of 0 means no
// bound.
func quiet(t testing.TB, bytes, frames, buffers int) (*Shared, *conn) {
	s, end := Idle(bytes, frames, buffers, new(budget.Shares))
	t.Cleanup(end)
	return s, connOf(s)
}
