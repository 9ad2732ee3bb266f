//go:build !windows

package audit

import (
	"bytes"
	"io"
	"log/syslog"
)

// openSyslog opens the system's log. Each line becomes a message of its own.
func openSyslog() (io.WriteCloser, error) {
	w, err := syslog.New(syslog.LOG_INFO|syslog.LOG_AUTHPRIV, "zlockd")
	return lineWriter{w}, err
}

type lineWriter struct{ *syslog.Writer }

func (w lineWriter) Write(b []byte) (n int, err error) {
	for line := range bytes.Lines(b) {
		if _, err := w.Writer.Write(line); err != nil {
			return n, err
		}
		n += len(line)
	}
	return n, nil
}
