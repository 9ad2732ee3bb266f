package watchers

import (
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/outbox"
)

// Watcher is a connection that may watch.
type Watcher struct {
	Out  *outbox.Outbox
	IDs  *identity.List // identities of its client
	From *Address

	// The lock of the table guards the fields below.
	dropped bool  // the connection may not set watches any longer
	hears   int32 // index of this connection in Table.hears, plus 1; 0: it gets no event of this portion
}

// Address holds what the connections from one address share.
type Address struct {
	Host    string
	Account budget.Account
	change  told
}

// Bounds are the bounds of watches, in their number and in bytes.
type Bounds struct{ PerConn, All, BytesPerConn, Bytes int }

// told records what an address has got of the present change. Table.mu guards it.
type told struct {
	steps int          // cost of its events, in units of 1/tellsInStep of a step
	loan  *budget.Loan // loan of the present portion
	alone bool         // before the change, the address had nothing in buffers
}
