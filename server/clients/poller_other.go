//go:build !linux

package clients

// newPoller returns nil: no connection rests.
func newPoller() poller { return nil }
