package client_test

import "github.com/zlockd/zlockd/client"

// addOperatorCalls adds what operators do to the locks of others.
func addOperatorCalls() {
	programOps["Client.Inspect"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.Inspect(ctx, w.path("mutex", "rw", "sem", "elect").path)
	}
	programOps["Client.Revoke"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw", "sem", "elect").path
		if q, err := w.c.Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.Revoke(ctx, p, q.Holders[0].Node, client.Revocation{By: "random"})
		}
	}
	programOps["Client.BreakExpired"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw").path
		if q, err := w.c.Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.BreakExpired(ctx, p, q.Holders[0].Node, q.Holders[0].Token)
		}
	}
	programOps["Client.WaitGraph"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.WaitGraph(ctx, "/")
	}
	otherCalls["Client.Walk"] = "see Client.WaitGraph"
	otherCalls["Client.Break"] = "the test removes nodes itself, so that it knows"
}
