package raftfsm

import (
	"context"
	"runtime/trace"
)

// noteStep puts a step of a request or an entry into the execution trace that is
// being recorded; see docs/operations.md. Callers ask trace.IsEnabled first, so that
// a step costs one look at a flag while none is.
func noteStep(what, format string, args ...any) {
	trace.Logf(context.Background(), what, format, args...)
}
