package ask

import (
	"net/http"

	"github.com/zlockd/zlockd/server/admin/port"
)

// BadRequest refuses a question that no server could answer.
func BadRequest(format string, args ...any) error {
	return port.Refuse(http.StatusBadRequest, format, args...)
}

// NotFound refuses a question about something that does not exist.
func NotFound(format string, args ...any) error {
	return port.Refuse(http.StatusNotFound, format, args...)
}

// Conflict refuses a request that the present state does not allow.
func Conflict(format string, args ...any) error {
	return port.Refuse(http.StatusConflict, format, args...)
}

// Refusals of a server that cannot answer now.
var (
	errBusy       = port.Refuse(http.StatusServiceUnavailable, "too many costly questions at once; ask again")
	ErrSlow       = port.Refuse(http.StatusServiceUnavailable, "the answer took too long; ask for less")
	ErrNotServing = port.Refuse(http.StatusServiceUnavailable,
		"this server has no state yet: it waits for the other servers")
	errLarge = port.Refuse(http.StatusRequestEntityTooLarge, "the answer would be too large; ask for less")
)
