package call

import "golang.org/x/sys/windows"

// ttyPgrp returns -1 for a console, which has no process group, and otherwise 0.
func ttyPgrp(fd int) int {
	var mode uint32
	if windows.GetConsoleMode(windows.Handle(fd), &mode) != nil {
		return 0
	}
	return -1
}

// awaitUnread returns false at once: the system does not report a closed reader.
func awaitUnread(int) bool { return false }

// DieOfInterrupt does nothing: no program here ends by a signal.
func DieOfInterrupt() {}
