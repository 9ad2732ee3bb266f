// Package port protects a port that strangers may find. It limits connections, with TLS or without, checks
// logins, refuses requests, and sends answers so that a slow reader delays no other client. It does not know
// what the requests mean.
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

// Unlimited removes the write timeout, because a profile takes as long as the caller asks for.
func Unlimited(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A writer without deadlines returns an error, which does not matter.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		f(w, r)
	}
}
