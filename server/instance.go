package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/server/view"
)

// Instance is a whole server in this process: its part in the cluster, its
// clients and its admin pages.
type Instance struct {
	Clients *clients.Server
	Admin   *admin.Admin

	o      Options
	c      options.Options              // what it passes to the client ports, with all defaults
	node   atomic.Pointer[raftfsm.Node] // nil until the server has joined its cluster
	client net.Listener
	secure net.Listener
	http   net.Listener
	pages  *http.Server
	view   *view.View    // nil without an admin port
	taker  *backup.Taker // nil: no backups are taken
	// metrics is the port that serves only /metrics, if an operator has configured one.
	metrics     net.Listener
	metricsPage *http.Server

	ticketPort  net.Listener
	ticketPages *http.Server
	tickets     *tickets.Server // nil: the server has no port for tickets
	endsSoon    atomic.Int64    // how many tickets hold a lock for long and end soon

	peerTLS *tlsfiles.Files // nil: the peer port has no TLS
	slow    observe.Slow

	reconfiguring sync.Mutex // held while a client's reconfig is carried out

	ctx    context.Context // ends when the server begins to close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan struct{}
	fail   sync.Once
	// waits says what keeps the server from joining its cluster; nil: nothing has so far.
	waits atomic.Pointer[string]
}

func addrString(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}

// ClientAddr returns the bound address of the client port. It returns "" if the server has no such port.
func (i *Instance) ClientAddr() string { return addrString(i.client) }

// SecureAddr returns the bound address of the client port with TLS. It returns "" if the server has no such
// port.
func (i *Instance) SecureAddr() string { return addrString(i.secure) }

// AdminAddr returns the bound address of the admin port. It returns "" if the server has no such port.
func (i *Instance) AdminAddr() string { return addrString(i.http) }

// MetricsAddr returns the bound address of the metrics port. It returns "" if the server has no such port.
func (i *Instance) MetricsAddr() string { return addrString(i.metrics) }

// Node returns this server's part in the cluster. It returns nil until the server has joined.
func (i *Instance) Node() *raftfsm.Node { return i.node.Load() }

// Ready waits until the server serves clients.
func (i *Instance) Ready(ctx context.Context) error { return i.Clients.WaitServing(ctx) }

// Failed returns a channel that closes when the server cannot continue. The log says why.
func (i *Instance) Failed() <-chan struct{} { return i.failed }

func (i *Instance) stopped() { i.fail.Do(func() { close(i.failed) }) }

// super returns the super user of each scheme.
func (i *Instance) super() identity.Super {
	return identity.Super{Digest: i.o.SuperDigest, SASL: i.o.SASLSuper, X509: i.o.X509Super}
}

// authorize() returns the function that checks the super user's password, for requests that change something.
// It returns nil if there is no super user.
func (i *Instance) authorize() port.Super {
	if i.o.SuperDigest == "" {
		return nil
	}
	return i.super().HasPassword
}

// dialable returns the address of a listener if others can connect to it as it is. It returns "" if the
// listener is nil or listens on all addresses.
func dialable(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	a, ok := ln.Addr().(*net.TCPAddr)
	if !ok || a.IP.IsUnspecified() {
		return ""
	}
	return a.String()
}
