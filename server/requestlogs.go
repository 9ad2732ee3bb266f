package server

import (
	"fmt"

	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
)

// follow returns what gives the requests of clients to the logs that the options ask for; nil: none.
func (i *Instance) follow() func(*observe.Request) {
	audit := i.o.Audit
	i.slow.Bound, i.slow.Log = i.o.SlowRequest, i.o.Logger
	if audit == nil && i.slow.Bound == 0 {
		return nil
	}
	return func(r *observe.Request) {
		if audit != nil {
			audit.Request(r)
		}
		if i.slow.Bound > 0 {
			i.slow.Request(r)
		}
	}
}

// requestLogStatus adds what the logs of requests did.
func (i *Instance) requestLogStatus(s *admin.Status) {
	var written, lost int64
	if i.o.Audit != nil {
		var problem error
		if written, lost, problem = i.o.Audit.Figures(); problem != nil {
			s.Faults = append(s.Faults, fmt.Sprintf("the audit log cannot be written, and %d lines are lost: %v", lost,
				problem))
		}
	}
	s.Measure("audit_lines_total", "Lines written to the audit log.", float64(written))
	s.Measure("audit_lines_lost_total", "Lines of the audit log lost because it could not be written.",
		float64(lost))
	i.slow.Status(s)
}
