// Package port protects a port that strangers may find. It has bounded listeners, with TLS or without,
// refusals and logins, and answers that do not wait for slow readers. It does not know the requests.
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
