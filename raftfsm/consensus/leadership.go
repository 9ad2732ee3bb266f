package consensus

import "context"

// Leadership provides a context for each leadership of this server; the context ends with the leadership.
type Leadership struct {
	notes chan bool            // notes from raft, whose main loop blocks until a note is received
	Won   chan context.Context // holds at most one leadership: the newest one
}

// NewLeadership returns the Leadership of a server that does not lead yet.
func NewLeadership() *Leadership {
	return &Leadership{notes: make(chan bool, 1), Won: make(chan context.Context, 1)}
}

// Note reports that raft gained or lost the leadership.
func (l *Leadership) Note(leads bool) { l.notes <- leads }

// Listen receives raft's notes that this server gained or lost the leadership. Listen must not call raft,
// because raft's main loop waits for Listen.
func (l *Leadership) Listen(ctx context.Context) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			return
		case leading := <-l.notes:
			end()
			select {
			case <-l.Won: // drop the former leadership, which is over and which no goroutine has taken
			default:
			}
			if leading {
				one, cancel := context.WithCancel(ctx)
				end = cancel
				l.Won <- one
			}
		}
	}
}
