package machine

func osVersion() string { return "<NA>" }

// MaxOpenFiles returns how many file descriptors this process may have, -1 if the system does not say.
func MaxOpenFiles() int64 { return -1 }
