package daemon

import (
	"fmt"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/server/tickets"
)

// devTickets is the address of the port for tickets of a server for development, unless the operator sets
// another.
const devTickets = "127.0.0.1:8183"

// ticketAddr returns the address of the port for tickets, or "" for no such port. If `anyPort` is true and
// the port is in use, the server may take another one: several servers for development may run at once.
func ticketAddr(s *settings.Settings) (addr string, anyPort bool) {
	if s.Dev && s.TicketAddr == "" {
		return devTickets, true
	}
	return settings.OrNone(s.TicketAddr), false
}

// ticketTokens reads the tokens for the port for tickets. It returns nil if no file is set.
func ticketTokens(s *settings.Settings) (*tickets.Tokens, error) {
	if s.TokensFile == "" {
		return nil, nil
	}
	t, err := tickets.ReadTokens(s.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("--ticket-tokens: %w", err)
	}
	return t, nil
}
