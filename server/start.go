package server

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/clients/entrance"
)

// Compile-time checks: a node has the methods that connections need, and the connections those that a node
// calls.
var (
	_ entrance.Replica = (*raftfsm.Node)(nil)
	_ raftfsm.Observer = (*clients.Server)(nil)
)

// Start runs a server. First it opens the ports: so it notices early that an address is in use, and answers
// health checks while it starts. It returns when the server has joined its cluster, or when ctx ends before.
// A new cluster forms when all its servers have been started. Clients are served a little later; see Ready.
func Start(ctx context.Context, o Options) (_ *Instance, err error) {
	i := &Instance{o: o.withDefaults(), failed: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	if i.o.PeerTLS.Cert != "" {
		if i.peerTLS, err = tlsfiles.Open(i.o.PeerTLS, i.o.Logger); err != nil {
			return nil, err
		}
	}
	if i.Clients, err = clients.New(i.clientOptions()); err != nil {
		return nil, err
	}
	i.c = i.Clients.Options()
	defer func() {
		if err != nil {
			_ = i.Close(ctx)
		}
	}()
	if err := i.listen(); err != nil {
		return nil, err
	}
	if err := i.openAdmin(); err != nil {
		return nil, err
	}
	if err := i.openTickets(); err != nil {
		return nil, err
	}
	i.logCertificates()
	i.takeBackups()
	i.accept()
	joined := i.readMeanwhile()
	node, err := raftfsm.Start(ctx, i.raftOptions())
	joined()
	if err != nil {
		return nil, err
	}
	i.node.Store(node)
	i.Clients.Use(node)
	if i.tickets != nil {
		i.tickets.Use(node)
	}
	return i, nil
}

// listen() opens the listeners.
func (i *Instance) listen() (err error) {
	for _, l := range []struct {
		addr    string
		ln      *net.Listener
		anyPort bool
	}{{i.o.ClientAddr, &i.client, false}, {i.o.SecureAddr, &i.secure, false}, {i.o.AdminAddr, &i.http, false},
		{i.o.MetricsAddr, &i.metrics, false}, {i.o.TicketAddr, &i.ticketPort, i.o.TicketAnyPort}} {
		if l.addr == "" {
			continue
		}
		*l.ln, err = i.o.Listen(l.addr)
		if host, _, _ := net.SplitHostPort(l.addr); err != nil && l.anyPort {
			*l.ln, err = i.o.Listen(net.JoinHostPort(host, "0"))
		}
		if err != nil {
			return err
		}
	}
	if i.http != nil {
		i.http = port.LimitListener(i.http)
		if i.o.AdminTLS != nil {
			i.http = port.TLSListener(i.http, i.o.AdminTLS, i.o.AdminClear)
		}
	}
	if i.metrics != nil {
		i.metrics = port.LimitListener(i.metrics)
		if i.o.MetricsTLS != nil {
			i.metrics = port.TLSListener(i.metrics, i.o.MetricsTLS, false)
		}
	}
	if i.secure != nil && i.o.ClientTLS == nil {
		return errors.New("a TLS port needs a TLS configuration")
	}
	return nil
}

// openAdmin makes what answers four-letter words, and the handlers for HTTP.
func (i *Instance) openAdmin() (err error) {
	pages := map[string]http.Handler{}
	i.openView(pages)
	i.addBackupPages(pages)
	i.addTracePage(pages)
	i.Admin, err = admin.New(admin.Options{Source: i, Whitelist: i.o.FourLetterWords, Authorize: i.authorize(),
		Hosts: i.o.AdminHosts, Profiling: i.o.Profiling, NoJVM: i.o.NoJVM, Pages: pages, Log: i.o.Logger})
	if err != nil {
		return err
	}
	url := addrString(i.http)
	if url != "" && i.o.AdminTLS != nil {
		url = "https://" + url
	} else if url != "" {
		url = "http://" + url
	}
	i.Clients.Answer(i.Admin, url)
	return nil
}

// accept() begins to serve all ports.
func (i *Instance) accept() {
	if i.client != nil {
		i.wg.Go(func() { i.served("client port", i.Clients.Serve(i.client)) })
	}
	if i.secure != nil {
		i.wg.Go(func() { i.served("TLS client port", i.Clients.ServeTLS(i.secure)) })
	}
	if i.http != nil {
		i.pages = i.Admin.HTTPServer()
		if i.o.Audit != nil {
			i.pages.Handler = i.o.Audit.HTTP(i.pages.Handler)
		}
		i.pages.BaseContext = func(net.Listener) context.Context { return i.ctx }
		i.wg.Go(func() { i.served("admin port", i.pages.Serve(i.http)) })
	}
	if i.metrics != nil {
		i.metricsPage = i.Admin.MetricsServer()
		i.wg.Go(func() { i.served("metrics port", i.metricsPage.Serve(i.metrics)) })
	}
}

// served() is called when a port is no longer served. After a failure it makes the whole server fail, so that
// a supervisor notices: without a port the server is of no use.
func (i *Instance) served(what string, err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		i.o.Logger.Error(what+" failed", "err", err)
		i.stopped()
	}
}

// Close shuts the server down, and gives up when ctx ends. The server hands its leadership over, and closes
// its connections: clients go to other servers, and sessions stay alive. What was acknowledged is on disk.
func (i *Instance) Close(ctx context.Context) error {
	i.cancel()
	if i.tickets != nil {
		i.tickets.Close()
	}
	var errs []error
	if node := i.node.Load(); node != nil {
		errs = append(errs, node.Close(ctx))
	}
	errs = append(errs, i.Clients.Shutdown(ctx))
	for _, pages := range []*http.Server{i.pages, i.metricsPage, i.ticketPages} {
		if pages != nil {
			errs = append(errs, pages.Shutdown(ctx))
		}
	}
	if i.view != nil {
		i.view.Close()
	}
	for _, ln := range []net.Listener{i.client, i.secure, i.http, i.metrics, i.ticketPort} {
		if ln != nil {
			ln.Close() // in case that it is not served yet; otherwise it is closed already
		}
	}
	i.wg.Wait()
	return errors.Join(errs...)
}
