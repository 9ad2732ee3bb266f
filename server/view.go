package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/view"
)

// openView adds the lock view to the admin pages. It is called before the admin
// port is opened; what has no admin port has no view.
func (i *Instance) openView() {
	if i.http == nil && i.metrics == nil {
		return
	}
	i.view = view.New(view.Options{
		Source: viewSource{i, i.Clients}, Authorize: i.o.Admin.Authorize, Now: i.o.Now, Log: i.o.Logger,
	})
	i.addPages(i.view.Pages())
}

// viewSource shows the instance to the lock view.
type viewSource struct {
	*Instance
	*clients.Server
}

var _ view.Source = viewSource{}

// View implements view.Source.
func (s viewSource) View(f func(*state.State)) bool {
	node := s.node.Load()
	if node == nil {
		return false
	}
	node.View(f)
	return true
}

// done passes an outcome on, as far as it can be kept.
type done chan state.Outcome

func (d done) Done(o *state.Outcome) {
	kept := *o
	kept.Reply = nil
	d <- kept
}

// Do implements view.Source.
func (s viewSource) Do(ctx context.Context, r state.Request) (state.Outcome, error) {
	node := s.node.Load()
	if node == nil {
		return state.Outcome{}, errNotJoined
	}
	d := make(done, 1)
	proposed := make(chan error, 1)
	go func() { proposed <- node.Propose(r, d) }() // it may block while too much is under way
	for {
		select {
		case err := <-proposed:
			if err != nil {
				return state.Outcome{}, err
			}
			proposed = nil
		case out := <-d:
			if out.Unknown {
				return out, errors.New("it is not known whether it took effect; look again")
			}
			return out, nil
		case <-ctx.Done():
			return state.Outcome{}, errors.New("no answer from the cluster in time; it may still take effect")
		}
	}
}

// HandOver implements view.Source.
func (s viewSource) HandOver(ctx context.Context) error {
	node := s.node.Load()
	if node == nil {
		return errNotJoined
	}
	return node.HandOver(ctx)
}

// TakeSnapshot implements view.Source.
func (s viewSource) TakeSnapshot() error {
	node := s.node.Load()
	if node == nil {
		return errNotJoined
	}
	return node.Snapshot()
}

// Certificates implements view.Source.
func (s viewSource) Certificates() []view.Certificate { return s.certificates() }

// certificates are those that this server shows to clients and to its peers, as
// they are shown now.
func (i *Instance) certificates() (list []view.Certificate) {
	for _, leaf := range shown(i.o.Clients.TLSConfig) {
		list = append(list, view.Certificate{Name: "clients", Expires: leaf.NotAfter})
	}
	if t := i.o.Raft.PeerTLS; t != nil && !t.Expires().IsZero() {
		list = append(list, view.Certificate{Name: "peers", Expires: t.Expires()})
	}
	return list
}

// shown returns the certificates of a configuration, as a client that asks for
// nothing special would be shown them.
func shown(cfg *tls.Config) (list []*x509.Certificate) {
	if cfg == nil {
		return nil
	}
	hello := &tls.ClientHelloInfo{}
	if cfg.GetConfigForClient != nil { // it takes the place of the rest
		if c, err := cfg.GetConfigForClient(hello); err == nil && c != nil {
			cfg = c
		}
	}
	pairs := cfg.Certificates
	if cfg.GetCertificate != nil {
		if c, err := cfg.GetCertificate(hello); err == nil && c != nil {
			pairs = []tls.Certificate{*c}
		}
	}
	for _, p := range pairs {
		leaf := p.Leaf
		if leaf == nil && len(p.Certificate) > 0 {
			leaf, _ = x509.ParseCertificate(p.Certificate[0]) // one that cannot be read is not shown
		}
		if leaf != nil {
			list = append(list, leaf)
		}
	}
	return list
}

// certificateSoon is how long before its end a certificate is worth a notice.
const certificateSoon = 30 * 24 * time.Hour

// certificateStatus notes certificates that end soon: then nobody gets in any more.
func (i *Instance) certificateStatus(s *admin.Status) {
	for _, c := range i.certificates() {
		switch left := c.Expires.Sub(s.Now); {
		case left <= 0:
			s.Notices = append(s.Notices, fmt.Sprintf("the certificate for %s has ended on %s", c.Name, c.Expires.UTC().Format(time.DateOnly)))
		case left < certificateSoon:
			s.Notices = append(s.Notices, fmt.Sprintf("the certificate for %s ends on %s", c.Name, c.Expires.UTC().Format(time.DateOnly)))
		}
	}
}
