package fence

import (
	"context"
	"errors"
	"net/http"
)

// Header carries the text form of a [Sequencer] in HTTP requests.
const Header = "Zlock-Sequencer"

// Middleware returns a [Handler] with only the gate and the next handler set. It passes on only the requests
// of current holders, and it believes its callers: see [Handler].
func Middleware(g *Gate, next http.Handler) http.Handler {
	return &Handler{Gate: g, Next: next}
}

// Handler is an HTTP handler that requires the sequencer of its lock in every request. The gate's resource is
// the path of the lock. While Next runs, the gate admits no later hold of the lock (see [Gate.Do]). When a
// later hold comes, the context of the running request ends.
//
// A sequencer is no secret and has no signature. Without Checker the handler believes what a caller sends. A
// caller that makes up a sequencer shuts out the holders of the lock that it names. If Lock is nil as well,
// each path that a caller names stays in the gate's store. So without Checker let only authenticated callers
// reach the handler.
//
//	428 the request has no sequencer
//	400 the sequencer is invalid, or is a permit
//	403 the sequencer belongs to another lock than the request needs
//	412 stale: another hold has the lock now
//	503 the handler could not find out whether the hold is current
type Handler struct {
	Gate *Gate
	Next http.Handler
	// Lock returns the path of the lock that guards the request. If Lock is nil, the path comes from the
	// sequencer. Then Next must compare that path ([FromContext]) with the resource that it changes.
	// Otherwise the holder of any lock could change it.
	Lock func(*http.Request) string
	// Checker, if set, checks each request before the gate, so a refused token never reaches the gate. It
	// also detects holds that ended without a successor. Each check is a request to the lock server; after a
	// wait for earlier holds there is a second check.
	Checker Checker
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	values := r.Header.Values(Header)
	if len(values) == 0 {
		http.Error(w, "fence: this request needs the header "+Header, http.StatusPreconditionRequired)
		return
	}
	if len(values) > 1 {
		http.Error(w, "fence: the request has more than one header "+Header, http.StatusBadRequest)
		return
	}
	s, err := ParseSequencer(values[0])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.Lock != nil && h.Lock(r) != s.Path {
		http.Error(w, "fence: the sequencer belongs to another lock", http.StatusForbidden)
		return
	}
	served := false
	if err = h.confirm(r.Context(), s); err == nil {
		err = h.Gate.do(r.Context(), s.Path, s.Mode, s.Token, func(ctx context.Context, waited bool) error {
			if waited { // the hold may have ended during the wait
				if err := h.confirm(ctx, s); err != nil {
					return err
				}
			}
			served = true
			h.Next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, contextKey{}, s)))
			return nil
		})
	}
	switch {
	case err == nil || served:
	case errors.Is(err, ErrStale):
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	case errors.Is(err, ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// confirm() asks the checker, if there is one.
func (h *Handler) confirm(ctx context.Context, s Sequencer) error {
	if h.Checker == nil {
		return nil
	}
	return h.Checker.CheckSequencer(ctx, s)
}

type contextKey struct{}

// FromContext returns the sequencer with which a [Handler] let the request in.
func FromContext(ctx context.Context) (Sequencer, bool) {
	s, ok := ctx.Value(contextKey{}).(Sequencer)
	return s, ok
}
