package server

import (
	"fmt"
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/tree"
)

var _ tickets.Node = (*raftfsm.Node)(nil)

// ticketConns bounds the connections to the port for tickets. Each waiting request has one connection.
const ticketConns = tickets.MaxWaits + 512

// openTickets makes the ticket server, if there is a port for tickets.
func (i *Instance) openTickets() error {
	if i.ticketPort == nil {
		return nil
	}
	at, _ := i.ticketPort.Addr().(*net.TCPAddr)
	if i.o.TicketTLS == nil && at != nil && !at.IP.IsLoopback() {
		return fmt.Errorf("the port for tickets at %s can be reached by others and has no TLS: give "+
			"--ticket-tls-cert and --ticket-tls-key, or an address of loopback", at)
	}
	o := tickets.Options{ID: i.o.ID, SkipACL: i.o.SkipACL, Max: i.o.MaxTicket, Tokens: i.o.TicketTokens,
		TLS: i.o.TicketTLS != nil, Now: i.leaderTime, KnownHost: i.Admin.KnownHost}
	if i.o.Audit != nil {
		o.Audit = i.auditTicket
	}
	i.tickets = tickets.New(o)
	i.o.Logger.Info("serving tickets", "addr", i.ticketPort.Addr().String(), "tls", i.o.TicketTLS != nil)
	i.ticketPages = port.HTTPServer(i.tickets)
	i.ticketPort = port.LimitListenerTo(i.ticketPort, ticketConns)
	if i.o.TicketTLS != nil {
		i.ticketPort = port.TLSListener(i.ticketPort, i.o.TicketTLS, false)
	}
	i.wg.Go(func() { i.served("port for tickets", i.ticketPages.Serve(i.ticketPort)) })
	i.wg.Go(i.remind)
	return nil
}

// leaderTime returns the leader's clock, by which tickets end, as far as this server knows it.
func (i *Instance) leaderTime() time.Time {
	if node := i.node.Load(); node != nil {
		return node.LeaderTime()
	}
	return i.o.Now()
}

func (i *Instance) auditTicket(operation string, ids []jute.ID, ip, path, result string) {
	i.o.Audit.Add(&audit.Event{IDs: ids, IP: ip, Operation: operation, Path: path, Result: result})
}

// TicketAddr returns the bound address of the port for tickets. It returns "" if the server has no such port.
func (i *Instance) TicketAddr() string { return addrString(i.ticketPort) }

// SetTicketTokens replaces the tokens that identify callers of the port for tickets.
func (i *Instance) SetTicketTokens(t *tickets.Tokens) {
	if i.tickets != nil {
		i.tickets.SetTokens(t)
	}
}

// observer() returns what learns of each change of the state: the client ports, and the tickets if there are
// any.
func (i *Instance) observer() raftfsm.Observer {
	if i.tickets == nil {
		return i.Clients
	}
	return &withTickets{i.Clients, i.tickets}
}

// withTickets passes each change of the state to the client ports and to the tickets. A server without
// tickets does not use it.
type withTickets struct {
	*clients.Server
	tickets *tickets.Server
}

// Events implements raftfsm.Observer.
func (o *withTickets) Events(zxid int64, events []tree.Event) {
	o.Server.Events(zxid, events)
	o.tickets.Events(events)
}

// SessionEnded implements raftfsm.Observer.
func (o *withTickets) SessionEnded(e *state.Ending) {
	o.Server.SessionEnded(e)
	if e.Session.Ticket != nil {
		o.tickets.Ended(e.Session.ID)
	}
}

// Heard implements raftfsm.Observer.
func (o *withTickets) Heard(list []state.Touch, all bool) []state.Touch {
	return o.tickets.Heard(o.Server.Heard(list, all), all)
}

// Serving implements raftfsm.Observer.
func (o *withTickets) Serving(on bool) {
	o.Server.Serving(on)
	o.tickets.Serving(on)
}

// Reset implements raftfsm.Observer.
func (o *withTickets) Reset() {
	o.Server.Reset()
	o.tickets.Reset()
}

// ticketStatus adds the state of tickets to a status.
func (i *Instance) ticketStatus(s *report.Status, node *raftfsm.Node, metrics bool) {
	i.reminder(s)
	if !metrics {
		return
	}
	count, rates, all, refused := 0, 0, int64(0), int64(0)
	if node != nil {
		node.View(func(st *state.State) { count, rates = st.Sessions().Tickets(), st.RateNodes() })
	}
	if i.tickets != nil {
		all, refused = i.tickets.Requests()
	}
	s.Measure("tickets", "Tickets in the cluster.", float64(count))
	s.Measure("ticket_holds_end_soon", "Long holds of tickets that end within 15 minutes, as the leader knows.",
		float64(i.endsSoon.Load()))
	s.Measure("ticket_waits", "Requests that wait at the port for tickets.", float64(i.TicketWaits()))
	s.Measure("ticket_requests_total", "Requests to the port for tickets.", float64(all))
	s.Measure("rate_nodes",
		"Nodes made by draws to count rates, with the directories of these nodes; at most 100,000.", float64(rates))
	drawn, none := i.TicketDraws()
	s.Measure("rate_draws_total", "Draws from rates that were granted at this server.", float64(drawn))
	s.Measure("rate_draws_refused_total", "Requests for a draw that were refused because no draw was free.",
		float64(none))
	s.Measure("ticket_requests_refused_total",
		"Requests to the port for tickets that were refused because of a bound or a missing right.",
		float64(refused))
}

// TicketDraws returns how many draws from rates the port for tickets has granted, and how many requests for a
// draw it has refused because the rate was used up.
func (i *Instance) TicketDraws() (granted, refused int64) {
	if i.tickets == nil {
		return 0, 0
	}
	return i.tickets.Draws()
}

// TicketWaits returns how many requests wait at the port for tickets.
func (i *Instance) TicketWaits() int {
	if i.tickets == nil {
		return 0
	}
	return i.tickets.Waits()
}
