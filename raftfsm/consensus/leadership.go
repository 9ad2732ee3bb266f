package consensus

import "context"

// Leadership makes a context of each leadership of this server, which ends when the leadership does.
type Leadership struct {
	notes chan bool            // from raft, whose main loop waits until it is heard
	Won   chan context.Context // of length 1: the leadership that has begun
}

// NewLeadership returns one that has not begun.
func NewLeadership() *Leadership {
	return &Leadership{notes: make(chan bool, 1), Won: make(chan context.Context, 1)}
}

// Note tells that raft gained or lost the leadership.
func (l *Leadership) Note(leads bool) { l.notes <- leads }

// Listen hears what raft says of this server's leadership, gained and lost. Its goroutine must not
// call raft, which waits for it.
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
			case <-l.Won: // it is over, and lead has not heard of it
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
