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

	// Under the lock of the table.
	dropped bool  // it may not set watches any longer
	hears   int32 // place, from 1, among the watchers of the present change
}

// Address holds the counts that the connections from one address share.
type Address struct {
	Host    string
	Account budget.Account
	change  told
}

// Bounds are the bounds of watches, in their number and in bytes.
type Bounds struct{ PerConn, All, BytesPerConn, Bytes int }

// told records which part of the change an address has received. It is under Table.mu.
type told struct {
	steps int          // cost of its events, in units of a step divided by tellsInStep
	loan  *budget.Loan // loan of the portion
	alone bool         // the address had no buffers before the change
}
