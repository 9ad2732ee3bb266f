package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/server/admin/port"
)

// Source gives a backup access to the state.
type Source interface {
	Backup(context.Context) (*apply.Backup, error)
	// Current waits until the state has every change that any server had acknowledged before the call. To know
	// that, it needs a majority.
	Current(context.Context) error
}

// Handler answers GET /commands/snapshot, as ZooKeeper 3.9 does. It sends the state as a snapshot of
// ZooKeeper, or as a backup if the request has format=zlockd.
type Handler struct {
	Source func() Source // returns nil while there is no state
	// Authorize checks whether a user may read all data.
	Authorize port.Super
	Log       *slog.Logger
}

const (
	waitLimit = 10 * time.Second // how long a request waits while the server takes a snapshot
	leastTime = 10 * time.Second // time that the client has in any case; port.Paced adds more for a long backup
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	format := cmp.Or(r.URL.Query().Get("format"), "zookeeper")
	b, no := h.backup(r, format)
	if no != nil {
		no.Answer(w, "snapshot")
		return
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("last_zxid", fmt.Sprintf("0x%x", b.Zxid))
	// A slow client must not keep the backup from its end: until then the server takes no snapshot, and each
	// change first copies data that the backup still needs.
	out := &port.Paced{Writer: w, Deadline: http.NewResponseController(w).SetWriteDeadline,
		End: time.Now().Add(leastTime)}
	if err := write(out, b, format); err != nil {
		h.Log.Warn("backup not sent", "to", r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler) // breaks the connection: the client must notice that a part is missing
	}
}

// backup takes the backup that a request asks for, or refuses it.
func (h *Handler) backup(r *http.Request, format string) (*apply.Backup, *port.Refusal) {
	switch {
	case r.Method != http.MethodGet:
		return nil, port.Refuse(http.StatusMethodNotAllowed, "use GET for a snapshot")
	case r.URL.Query().Get("streaming") == "false":
		return nil, port.Refuse(http.StatusBadRequest,
			"streaming=false is not possible: the answer is the snapshot, and no file is written")
	}
	if _, no := h.Authorize.User(r, "A snapshot holds everything"); no != nil {
		return nil, no
	}
	if format != "zookeeper" && format != "zlockd" {
		return nil, port.Refuse(http.StatusBadRequest, "format must be zookeeper or zlockd")
	}
	source := h.Source()
	if source == nil {
		return nil, port.Refuse(http.StatusServiceUnavailable, "This server has not joined its cluster yet")
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitLimit)
	defer cancel()
	// Without this an old state could get into a backup with a new date.
	if err := source.Current(ctx); err != nil {
		return nil, port.Refuse(http.StatusServiceUnavailable, "%v; ask a server that serves clients, or "+
			"stop this one and use its data directory (zlockd export, zlockd recover)", err)
	}
	b, err := source.Backup(ctx)
	if err != nil {
		return nil, port.Refuse(http.StatusServiceUnavailable, "%v", err)
	}
	return b, nil
}

// write writes a backup in one of the formats.
func write(w io.Writer, b *apply.Backup, format string) error {
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
	from.CloseWithError(io.ErrClosedPipe) // makes the writer end if ToZooKeeper has not read everything
	<-written                             // the caller may release the state only after that
	return err
}
