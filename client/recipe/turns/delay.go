package turns

import "time"

// DelayLeft returns how long a contender must still wait after the death of a holder. It is zero or negative
// if the delay is over. The delay begins when the first contender that finds the dead holder's mark writes
// the mark again: `stamped` is the server's time of this write. The server's time at which the contender's
// own node was made is `created`, and `since` is how long the contender has known of its node. So
// created+since-stamped is the part of the delay that is over. It may be longer than the contender has
// waited, so a try after the delay gets the lock.
func DelayLeft(delay time.Duration, stamped, created int64, since time.Duration) time.Duration {
	return min(delay, time.Duration(stamped-created)*time.Millisecond+delay-since)
}
