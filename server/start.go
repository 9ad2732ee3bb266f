package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

var _ Replica = (*raftfsm.Node)(nil)

// Instance is a whole server in this process: its part in the cluster, its
// clients and its admin pages.
type Instance struct {
	Server *Server
	Admin  *admin.Admin

	o      Options
	node   atomic.Pointer[raftfsm.Node] // nil until it has joined its cluster
	client net.Listener
	secure net.Listener
	http   net.Listener
	pages  *http.Server

	reconfiguring sync.Mutex // held by the one reconfig under way here

	wg     sync.WaitGroup
	failed chan struct{}
	fail   sync.Once
}

// Start runs a server. It listens at once, so that addresses in use are found
// early and health checks are answered, and returns when the server has joined
// its cluster: for a new cluster of several that is when all of them have been
// started. ctx bounds that wait. Clients are served a little later, see Ready.
func Start(ctx context.Context, o Options) (_ *Instance, err error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	i := &Instance{Server: s, o: s.o, failed: make(chan struct{})}
	if o.Reconfig {
		s.o.Reconfigure = i.reconfigure
	}
	defer func() {
		if err != nil {
			i.Close(ctx)
		}
	}()
	if err := i.listen(); err != nil {
		return nil, err
	}
	if err := i.openAdmin(); err != nil {
		return nil, err
	}
	i.accept()
	node, err := raftfsm.Start(ctx, i.raftOptions())
	if err != nil {
		return nil, err
	}
	i.node.Store(node)
	s.Use(node)
	return i, nil
}

// listen opens the listeners.
func (i *Instance) listen() (err error) {
	for _, l := range []struct {
		addr string
		ln   *net.Listener
	}{{i.o.ClientAddr, &i.client}, {i.o.SecureAddr, &i.secure}, {i.o.AdminAddr, &i.http}} {
		if l.addr == "" {
			continue
		}
		if *l.ln, err = i.o.Listen(l.addr); err != nil {
			return err
		}
	}
	if i.secure != nil && i.o.TLSConfig == nil {
		return errors.New("a TLS port needs a TLS configuration")
	}
	return nil
}

// openAdmin makes what answers four-letter words and HTTP.
func (i *Instance) openAdmin() (err error) {
	i.o.Admin.Source = i
	if i.Admin, err = admin.New(i.o.Admin); err != nil {
		return err
	}
	i.Server.Answer(i.Admin, addrString(i.http))
	return nil
}

// accept serves the listeners.
func (i *Instance) accept() {
	if i.client != nil {
		i.wg.Go(func() { i.served("client port", i.Server.Serve(i.client)) })
	}
	if i.secure != nil {
		i.wg.Go(func() { i.served("TLS client port", i.Server.ServeTLS(i.secure)) })
	}
	if i.http != nil {
		i.pages = i.Admin.HTTPServer()
		i.wg.Go(func() { i.served("admin port", i.pages.Serve(i.http)) })
	}
}

// served notes that a port is served no more. Without its ports a server is of
// no use, and whoever supervises it should know.
func (i *Instance) served(what string, err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		i.o.Logger.Error(what+" failed", "err", err)
		i.stopped()
	}
}

// raftOptions completes what the caller said of the cluster.
func (i *Instance) raftOptions() raftfsm.Options {
	r := i.o.Raft
	r.ID = i.o.ID
	r.Observer = i.Server
	r.MinSessionTimeout = i.o.MinSessionTimeout
	setDefault(&r.Logger, i.o.Logger)
	setDefault(&r.Rand, i.o.Rand)
	if r.Now == nil {
		r.Now = i.o.Now
	}
	if r.ClientAddr == "" {
		r.ClientAddr = reachable(i.client)
	}
	then := r.Fatal
	r.Fatal = func(err error) {
		i.Server.cutOff()
		i.stopped()
		if then != nil {
			then(err)
		}
	}
	return r
}

// reachable returns the address of a listener if others can be told it.
func reachable(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	a, ok := ln.Addr().(*net.TCPAddr)
	if !ok || a.IP.IsUnspecified() {
		return ""
	}
	return a.String()
}

func addrString(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}

// ClientAddr is the bound address of the client port, empty if there is none.
func (i *Instance) ClientAddr() string { return addrString(i.client) }

// SecureAddr is the bound address of the TLS client port, empty if there is
// none.
func (i *Instance) SecureAddr() string { return addrString(i.secure) }

// AdminAddr is the bound address of the admin port, empty if there is none.
func (i *Instance) AdminAddr() string { return addrString(i.http) }

// Node is this server's part in the cluster, nil until it has joined.
func (i *Instance) Node() *raftfsm.Node { return i.node.Load() }

// Ready waits until clients are served.
func (i *Instance) Ready(ctx context.Context) error { return i.Server.WaitServing(ctx) }

// Failed is closed when the server cannot go on by itself; the log says why.
func (i *Instance) Failed() <-chan struct{} { return i.failed }

func (i *Instance) stopped() { i.fail.Do(func() { close(i.failed) }) }

// Close stops the server in order, as far as ctx allows: leadership is handed
// over, clients are closed so that they go elsewhere, and what was promised is
// on disk. Sessions are not touched.
func (i *Instance) Close(ctx context.Context) error {
	var errs []error
	if node := i.node.Load(); node != nil {
		errs = append(errs, node.Close(ctx))
	}
	errs = append(errs, i.Server.Shutdown(ctx))
	if i.pages != nil {
		errs = append(errs, i.pages.Shutdown(ctx))
	}
	for _, ln := range []net.Listener{i.client, i.secure, i.http} {
		if ln != nil {
			ln.Close() // those that nobody served yet
		}
	}
	i.wg.Wait()
	return errors.Join(errs...)
}
