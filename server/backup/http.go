package backup

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/server/admin"
)

// Source takes hold of the state.
type Source interface {
	Backup(context.Context) (*raftfsm.Backup, error)
}

// Handler answers GET /commands/snapshot, as ZooKeeper 3.9 has it: the state as
// a snapshot of a ZooKeeper or, with format=zlockd, as a backup.
type Handler struct {
	Source func() Source // nil while there is no state
	// Authorize decides whether a user may have everything that is stored. Nil: no user may.
	Authorize func(user, password string) bool
	Log       *slog.Logger
}

const (
	waitLimit = 10 * time.Second // for a snapshot under way
	leastRate = 1 << 20          // bytes a second that a reader must take
	leastTime = 10 * time.Second // and this much longer
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, problem := h.refuse(r); code != http.StatusOK {
		refuse(w, code, problem)
		return
	}
	format := r.URL.Query().Get("format")
	if format == "" {
		format = "zookeeper"
	}
	if format != "zookeeper" && format != "zlockd" {
		refuse(w, http.StatusBadRequest, "format is zookeeper or zlockd")
		return
	}
	source := h.Source()
	if source == nil {
		refuse(w, http.StatusServiceUnavailable, "This server has not joined its cluster yet")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitLimit)
	defer cancel()
	b, err := source.Backup(ctx)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("last_zxid", fmt.Sprintf("0x%x", b.Zxid))
	out := &steady{w: w, c: http.NewResponseController(w), end: time.Now().Add(leastTime)}
	if err := write(out, b, format); err != nil {
		h.Log.Warn("backup not sent", "to", r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler) // so that the other side sees that the end is missing
	}
}

// refuse returns why the server must not answer a request.
func (h *Handler) refuse(r *http.Request) (code int, problem string) {
	switch {
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "snapshot is asked for by GET"
	case r.URL.Query().Get("streaming") == "false":
		return http.StatusBadRequest, "snapshots are streamed; this server takes its own by itself"
	case h.Authorize == nil:
		return http.StatusForbidden, "A snapshot holds everything: start zlockd with --super-digest"
	}
	_, code, problem = admin.Login(r, h.Authorize)
	return code, problem
}

func refuse(w http.ResponseWriter, code int, problem string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, "{\n  \"command\" : \"snapshot\",\n  \"error\" : %q\n}", problem)
}

// write writes a backup in one of the formats.
func write(w io.Writer, b *raftfsm.Backup, format string) error {
	if format == "zlockd" {
		return b.Write(w)
	}
	from, to := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		to.CloseWithError(b.Write(to))
	}()
	err := offline.ToZooKeeper(w, from, b.ACLs)
	from.CloseWithError(io.ErrClosedPipe) // ends the writer, if there is something left to write
	<-written                             // until then the state is in use
	return err
}

// steady gives up on a reader that is too slow: while a backup is under way, changes keep copies
// of what it has not written, and the server takes no snapshot.
type steady struct {
	w   io.Writer
	c   *http.ResponseController
	end time.Time
}

func (s *steady) Write(b []byte) (int, error) {
	// Recorders and the like take no deadlines.
	_ = s.c.SetWriteDeadline(s.end)
	n, err := s.w.Write(b)
	s.end = s.end.Add(time.Duration(n) * time.Second / leastRate)
	return n, err
}
