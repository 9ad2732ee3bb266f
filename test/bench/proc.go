package main

import (
	"syscall"
	"time"
)

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// idleTime measures the processor time that servers without clients use.
func idleTime() point {
	return point{
		name: "idle", help: "processor time of servers without clients, all together",
		run: func(c *config, s *side) (out sample, err error) {
			if s.external != nil {
				return out, errNotHere
			}
			time.Sleep(c.warm)
			before, leader := takeUsage(s.pids()), takeUsage(s.leader())
			time.Sleep(c.duration)
			spent, _ := before.perOp(1)
			share := 100 / float64(c.duration.Microseconds())
			out.metrics = []metric{{unit: "% of a core", value: share * spent, lower: true}}
			for _, m := range leader.alone(1) {
				m.unit, m.value = "% of a core", share*m.value
				out.metrics = append(out.metrics, m)
			}
			return out, nil
		},
	}
}
