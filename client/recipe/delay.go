package recipe

import "time"

// DelayLeft returns how long a contender must still wait after the death of a holder, zero or less if the
// delay is over. The first contender that finds the dead holder's mark writes it again, and the server stamps
// that write. Each contender compares that time with the server's time of its own node's creation. From there
// it counts by its own clock: since is how long it has known of its node. So short waits add up, and a try
// after the delay gets the lock.
//
// The times of two leaders may differ, so a contender never waits for longer than the delay.
func DelayLeft(delay time.Duration, stamped, created int64, since time.Duration) time.Duration {
	return min(delay, time.Duration(stamped-created)*time.Millisecond+delay-since)
}
