package daemon

import (
	"fmt"
	"net"
	"time"

	"github.com/zlockd/zlockd/server/tickets"
)

// devTickets is where a server for development serves tickets, unless it is told otherwise.
const devTickets = "127.0.0.1:8183"

// maxTicket is the longest --max-ticket: a session's time is a number of milliseconds with 31 bits.
const maxTicket = 24 * 24 * time.Hour

// ticketAddr returns the address of the port for tickets; empty: there is none.
func (s *settings) ticketAddr() string {
	if !s.dev || s.TicketAddr != "" {
		return orNone(s.TicketAddr)
	}
	l, err := net.Listen("tcp", devTickets)
	if err != nil {
		return "127.0.0.1:0"
	}
	l.Close()
	return devTickets
}

// tokens reads the tokens of the callers of the port for tickets; nil: there is no file of them.
func (s *settings) tokens() (*tickets.Tokens, error) {
	if s.ticketTokens == "" {
		return nil, nil
	}
	t, err := tickets.ReadTokens(s.ticketTokens)
	if err != nil {
		return nil, fmt.Errorf("--ticket-tokens: %w", err)
	}
	return t, nil
}
