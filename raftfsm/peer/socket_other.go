//go:build !linux && !darwin

package peer

import "time"

// boundUnacknowledged does nothing: this system has no such option. Keep-alive detects that an idle peer is
// gone, and the system's own timeout that a busy peer is.
func boundUnacknowledged(int, time.Duration) error { return nil }
