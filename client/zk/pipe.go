package zk

import "context"

// Reply is the answer to a request of a [Pipe]. It may not have arrived yet.
type Reply[T any] struct {
	call
	c *Conn
	v T
}

// Done returns a channel that closes when the answer has arrived or can no longer arrive.
func (r *Reply[T]) Done() <-chan struct{} { return r.done }

// Wait returns the answer, or the error of ctx if ctx ends first. In that case the Conn withdraws the request
// if it has not sent it yet. For a write that it has already sent, the error is ErrUncertain. A caller may
// call Wait again to learn the outcome.
func (r *Reply[T]) Wait(ctx context.Context) (T, error) {
	var none T
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			if err := r.c.leave(ctx, &r.call); err != nil {
				return none, err
			}
		}
	}
	if r.err != nil {
		return none, r.err
	}
	return r.v, nil
}

// Watch returns the watch that a read set, once Wait has returned without an error.
func (r *Reply[T]) Watch() *Watch { return r.watch }

// Pipe collects requests and sends them together on one connection, in order, with no other request between
// them. The server answers them in that order. If the connection is lost, the Conn repeats the reads, and the
// writes fail with ErrConnectionLost.
type Pipe struct {
	c     *Conn
	calls []*call
}

// Pipe returns an empty Pipe.
func (c *Conn) Pipe() *Pipe { return &Pipe{c: c} }

// Send sends the collected requests. It does not wait: without a connection the Conn sends them as
// soon as there is one.
func (p *Pipe) Send() {
	p.c.submit(false, p.calls...)
	p.calls = nil
}

// SendSoon is like Send, for requests for which no caller waits. If another request follows at once, both
// leave together, and the server may carry out both in one step.
func (p *Pipe) SendSoon() {
	p.c.submit(true, p.calls...)
	p.calls = nil
}

func add[T any](p *Pipe, r *Reply[T]) *Reply[T] {
	r.c = p.c
	p.calls = append(p.calls, &r.call)
	return r
}

// do() sends one request and waits for its answer.
func do[T any](ctx context.Context, c *Conn, r *Reply[T]) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	r.c = c
	c.submit(false, &r.call)
	return r.Wait(ctx)
}
