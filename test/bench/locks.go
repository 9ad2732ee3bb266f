package main

import (
	"fmt"
	"os"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
)

// lockMemory measures the memory and the disk that locks take: first without holders, then with a holder in
// each lock's directory.
func lockMemory(n int) point {
	const conns = 100
	return point{
		name: fmt.Sprintf("locks:%d", n), alone: true, once: true,
		help: fmt.Sprintf("resident memory and disk of %d lock directories, then with a holder of 100 bytes "+
			"in each, by %d sessions", n, conns),
		run: func(c *config, s *side) (out sample, err error) {
			e, err := s.fresh(func(o *cluster.Options) {
				c.makeRoom(o)
				o.Flags = append(o.Flags, "--snapshot-interval", lockRest.String())
			})
			if err != nil {
				return out, err
			}
			defer e.Close()
			base := residentOf(e)
			report := func(what string) {
				time.Sleep(2 * lockRest) // time for at least one snapshot of the whole state
				bytes, disk, snapshot := residentOf(e)-base, measure.OnDisk(e.Servers[0].Data()), int64(0)
				for _, f := range snapshotFiles(e) {
					if info, err := os.Stat(f); err == nil {
						snapshot = max(snapshot, info.Size())
					}
				}
				each := float64(n)
				out.metrics = append(out.metrics,
					metric{name: what, unit: "B", value: bytes / each / float64(len(e.Servers)), lower: true},
					metric{name: what + ", a snapshot", unit: "B", value: float64(snapshot) / each, lower: true},
					metric{name: what + ", data directory", unit: "B", value: float64(disk) / each, lower: true})
			}
			if err := fill(e.Servers[0].Client, nil, n); err != nil {
				return out, err
			}
			report("directory")
			list, err := dialAll(addrsOf(e), conns, 20*sessionTimeout)
			if err != nil {
				return out, err
			}
			defer dropAll(list)
			if err := parallel(8, conns, func(i int) error {
				return bulk(list[i], n/conns, func(k int) {
					list[i].Create(fillPath(i*(n/conns)+k)+"/_c_00000000-0000-0000-0000-000000000000-lock-", payload,
						jute.FlagEphemeralSequential)
				}, jute.OK)
			}); err != nil {
				return out, err
			}
			report("held lock with its directory")
			return out, nil
		},
	}
}

// lockRest is the time between two snapshots of the servers of lockMemory.
const lockRest = 10 * time.Second
