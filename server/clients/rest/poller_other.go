//go:build !linux

package rest

// newPoller returns nil: no connection rests.
func newPoller() Poller { return nil }
