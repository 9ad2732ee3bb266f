package client_test

import (
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// addOperatorCalls adds what operators do to the locks of others.
func addOperatorCalls() {
	programOps["Inspector.Inspect"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.Inspector().Inspect(ctx, w.path("mutex", "rw", "sem", "elect").path)
	}
	programOps["Inspector.Revoke"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw", "sem", "elect").path
		if q, err := w.c.Inspector().Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.Inspector().Revoke(ctx, p, q.Holders[0].Node, recipe.Revocation{By: "random"})
		}
	}
	programOps["Inspector.BreakExpired"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw").path
		if q, err := w.c.Inspector().Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.Inspector().BreakExpired(ctx, p, q.Holders[0].Node, fence.Token(q.Holders[0].Token))
		}
	}
	programOps["Inspector.WaitGraph"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.Inspector().WaitGraph(ctx, "/")
	}
	otherCalls["Inspector.Walk"] = "see Inspector.WaitGraph"
	otherCalls["Inspector.Break"] = "the test removes nodes itself, so that it knows"
}
