package turns

import "time"

// DelayLeft returns how long a contender must still wait after the death of a holder: zero or less if the
// delay is over. The delay begins when the first contender that finds the holder dead writes this into the
// record. `stamped` is the server's time of this write. `created` is the server's time at which the waiting
// contender's node was made, and `since` is how long that contender has known of its node. So
// created+since-stamped is the part of the delay that is over. It may be longer than the contender has
// waited. So a contender that comes after the delay gets the lock without a wait.
func DelayLeft(delay time.Duration, stamped, created int64, since time.Duration) time.Duration {
	return min(delay, time.Duration(stamped-created)*time.Millisecond+delay-since)
}
