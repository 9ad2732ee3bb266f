package outbox

import "syscall"

// writeOnce writes nothing, so that a flusher writes the frames.
func writeOnce(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }
