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
	// Current waits until the state contains every change that any server had confirmed before the call. It
	// needs the answer of a majority.
	Current(context.Context) error
}

// Handler answers GET /commands/snapshot, like ZooKeeper 3.9. The answer is the state as a ZooKeeper snapshot
// or, with format=zlockd, as a backup.
type Handler struct {
	Source func() Source // returns nil while there is no state
	// Authorize checks whether a user may read all data.
	Authorize port.Super
	Log       *slog.Logger
}

const (
	waitLimit = 10 * time.Second // how long a request waits for a snapshot under way
	leastTime = 10 * time.Second // how long any transfer may take; port.Paced gives a long one more time
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
	// While a backup is under way, a change must copy data that the backup has not written yet, and the
	// server takes no snapshot. So a slow client gets a deadline.
	out := &port.Paced{Writer: w, Deadline: http.NewResponseController(w).SetWriteDeadline,
		End: time.Now().Add(leastTime)}
	if err := write(out, b, format); err != nil {
		h.Log.Warn("backup not sent", "to", r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler) // so that the client notices that the answer is not complete
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
	// A backup of an old state would look like a new backup, because of its date.
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
	from.CloseWithError(io.ErrClosedPipe) // ends the writer, if it has not written everything
	<-written                             // the writer uses the state until it ends
	return err
}
