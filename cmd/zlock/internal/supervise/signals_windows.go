package supervise

import "syscall"

// SignalName returns the name of the signal.
func SignalName(sig syscall.Signal) string { return sig.String() }
