package watchers

import (
	"cmp"
	"testing"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/outbox"
)

// quiet() returns the table of a server that does nothing, and a connection. A bound of 0 means no bound.
func quiet(t testing.TB, b Bounds, conns, buffers int) (*Table, *Watcher) {
	const many = 1 << 40
	b = Bounds{PerConn: cmp.Or(b.PerConn, many), All: cmp.Or(b.All, many),
		BytesPerConn: cmp.Or(b.BytesPerConn, many), Bytes: cmp.Or(b.Bytes, many)}
	shares := &budget.Shares{Bytes: b.BytesPerConn}
	shares.SetConns(cmp.Or(conns, 60))
	s, end := outbox.Idle(0, 0, buffers, shares)
	t.Cleanup(end)
	table := new(Table)
	table.Init(b, shares, s, func(string) []*Watcher { return nil })
	return table, connFrom(table, new(Address))
}

// connFrom returns a connection from an address.
func connFrom(s *Table, from *Address) *Watcher {
	ids := new(identity.List)
	ids.Store(identity.Unproved("127.0.0.1", false))
	return &Watcher{Out: &outbox.NewStub(s.outboxes, &from.Account).Outbox, IDs: ids, From: from}
}
