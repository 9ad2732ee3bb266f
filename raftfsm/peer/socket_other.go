//go:build !linux && !darwin

package peer

import "time"

// boundUnacknowledged does nothing: this system has no such option. Keep-alive detects the loss of a peer on
// an idle connection, and the system's own timeout on a busy connection.
func boundUnacknowledged(int, time.Duration) error { return nil }
