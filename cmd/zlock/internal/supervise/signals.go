package supervise

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// EndSignals are the signals that ask a program to end.
var EndSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// tellsToEnd reports whether a signal asks a program to end.
func tellsToEnd(sig os.Signal) bool { return slices.Contains(EndSignals, sig) }

// Listen receives signals for this process. It leaves out signals that this process ignored from its start,
// as with nohup or in a shell's background job. COMMAND ignores these signals, too.
func Listen(sigs ...os.Signal) chan os.Signal {
	ch := make(chan os.Signal, 16)
	for _, sig := range sigs {
		if !signal.Ignored(sig) {
			signal.Notify(ch, sig)
		}
	}
	return ch
}
