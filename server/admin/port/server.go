// Package port protects an HTTP port that strangers may reach. It bounds the connections, with TLS or
// without, checks logins, and refuses requests. It sends answers so that a slow reader keeps no other client
// waiting. It does not know what requests mean.
package port

import (
	"net/http"
	"time"
)

// HTTPServer returns a server with limits that protect a port open to strangers.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           busy(h),
		ConnContext:       withConn,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}

// Unlimited removes the time limit for writing from a handler, because a profile takes as long as the caller
// asks.
func Unlimited(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Ignore the error: only a test's writer has no deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		f(w, r)
	}
}
