package turns

import "time"

// DelayLeft returns how long a contender must still wait after the death of a holder. It is zero or negative
// if the delay is over. The first contender that finds the dead holder's mark writes the mark again, and the
// server stamps this write. Each contender compares that time with the server's time at which its own node
// was created. From then on the contender counts by its own clock: the argument `since` is how long it has
// known of its node. So a contender that waits only for short times still counts the whole delay, and a try
// after the delay gets the lock.
func DelayLeft(delay time.Duration, stamped, created int64, since time.Duration) time.Duration {
	return min(delay, time.Duration(stamped-created)*time.Millisecond+delay-since)
}
