package daemon

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/server/tickets"
)

// devTickets is where a server for development serves tickets, unless it is told otherwise.
const devTickets = "127.0.0.1:8183"

// maxTicket is the longest --max-ticket: a session's time is a number of milliseconds with 31 bits.
const maxTicket = 24 * 24 * time.Hour

// ticketAddr returns the address of the port for tickets, empty if there is none, and whether another port
// will do where that one is taken: several servers for development run beside each other.
func (s *settings) ticketAddr() (addr string, anyPort bool) {
	if s.dev && s.TicketAddr == "" {
		return devTickets, true
	}
	return orNone(s.TicketAddr), false
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
