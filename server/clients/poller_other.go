//go:build !linux

package clients

// newPoller returns nil: every resting connection keeps a goroutine.
func newPoller() poller { return nil }
