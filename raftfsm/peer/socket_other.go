//go:build !linux && !darwin

package peer

import "time"

// boundUnacknowledged: there is no such option here; keep-alive notices an idle
// peer that is gone, and the system's own patience a busy one.
func boundUnacknowledged(int, time.Duration) error { return nil }
