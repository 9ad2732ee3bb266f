//go:build !linux && !darwin

package peer

import "time"

// boundUnacknowledged does nothing: this system has no such option. Keep-alive notices an idle peer
// that is gone, and the system's own timeout a busy one.
func boundUnacknowledged(int, time.Duration) error { return nil }
