package daemon

import (
	"fmt"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/server/tickets"
)

// devTickets is where a server for development serves tickets, unless it is told otherwise.
const devTickets = "127.0.0.1:8183"

// ticketAddr returns the address of the port for tickets, empty if there is none, and whether another port
// will do where that one is taken: several servers for development run beside each other.
func ticketAddr(s *settings.Settings) (addr string, anyPort bool) {
	if s.Dev && s.TicketAddr == "" {
		return devTickets, true
	}
	return settings.OrNone(s.TicketAddr), false
}

// ticketTokens reads the tokens of the callers of the port for tickets; nil: there is no file of them.
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
