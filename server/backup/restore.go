package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/server/admin/port"
)

// Target is the server whose state a backup replaces.
type Target interface {
	Restore(ctx context.Context, backup io.Reader, size int64, keep bool) (restore.Restored, error)
	Fits(nodes int, bytes int64) error
	Room(bytes int64) error
}

// Restorer answers POST /commands/restore. The request has a backup, which takes the place of the whole
// cluster's state.
type Restorer struct {
	Target func() Target // returns nil while there is no state
	// Dir is a directory with room for the backup, which is received and checked before it is used.
	Dir string
	// Authorize checks whether a user may replace all data.
	Authorize port.Super
	Log       *slog.Logger

	busy sync.Mutex // locked while a restore is under way
}

// restoreAnswer is the answer to a restore. Later releases may add fields but remove none.
type restoreAnswer struct {
	V        int     `json:"v"`
	Command  string  `json:"command"`
	Error    *string `json:"error"`
	Zxid     string  `json:"last_zxid,omitempty"`
	Nodes    int     `json:"nodes"`
	Sessions int     `json:"sessions"` // how many sessions live on
	Ended    int     `json:"ended"`    // how many sessions of the replaced state have ended
}

// ServeHTTP implements http.Handler.
func (h *Restorer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, made, err := h.restore(w, r)
	a := restoreAnswer{V: 1, Command: "restore"}
	if err != nil {
		text := err.Error()
		a.Error = &text
	} else {
		a.Zxid, a.Nodes, a.Sessions, a.Ended = fmt.Sprintf("0x%x", made.Zxid), made.Nodes, made.Sessions, made.Ended
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// Ignore the error: then the client is gone, and needs no answer.
	_ = json.NewEncoder(w).Encode(a)
}

func (h *Restorer) restore(w http.ResponseWriter, r *http.Request) (code int, made restore.Restored,
	err error) {
	no := port.Posts(w, r)
	if no == nil {
		_, no = h.Authorize.User(r, "a restore replaces everything")
	}
	if no != nil {
		return no.Status, made, no
	}
	target := h.Target()
	if target == nil {
		return http.StatusServiceUnavailable, made, errors.New("this server has not joined its cluster yet")
	}
	if !h.busy.TryLock() {
		return http.StatusConflict, made, restore.ErrRestoring
	}
	defer h.busy.Unlock()
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Time{}) // ignore the error: only a test's writer has no deadlines
	f, size, code, err := h.receive(target, &port.Paced{Reader: r.Body, Deadline: c.SetReadDeadline,
		End: time.Now().Add(leastTime)})
	if err != nil {
		return code, made, err
	}
	defer f.Close()
	if err := check(io.NewSectionReader(f, 0, size), target); err != nil {
		return http.StatusBadRequest, made, err
	}
	_ = c.SetReadDeadline(time.Time{})
	h.Log.Warn("a backup is being restored", "bytes", size, "from", r.RemoteAddr)
	made, err = target.Restore(r.Context(), bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 256<<10), size,
		r.URL.Query().Get("keep-sessions") == "true")
	switch {
	case errors.Is(err, restore.ErrNotKnown):
		return http.StatusServiceUnavailable, made,
			fmt.Errorf("%w: there is no leader, or it does not answer. Once a leader serves, compare by zlockd verify",
				err)
	case errors.Is(err, restore.ErrRestoring):
		return http.StatusConflict, made, err
	case err != nil:
		h.Log.Warn("the backup was not restored", "err", err)
		return http.StatusServiceUnavailable, made, err
	}
	return http.StatusOK, made, nil
}

// spoolStep is how many bytes receive() writes before it checks again that the disk has room.
const spoolStep = 4 << 20

// receive writes a backup into a file that has no name any longer. So the file is gone when the process ends,
// even by a crash.
func (h *Restorer) receive(target Target, body io.Reader) (f *os.File, size int64, code int, err error) {
	if err := target.Room(spoolStep); err != nil {
		return nil, 0, http.StatusInsufficientStorage, err
	}
	f, err = os.CreateTemp(h.Dir, "restore-*.tmp")
	if err != nil {
		return nil, 0, http.StatusInsufficientStorage, err
	}
	if err = os.Remove(f.Name()); err != nil {
		return nil, 0, http.StatusInternalServerError, errors.Join(err, f.Close())
	}
	for {
		n, err := io.CopyN(f, body, spoolStep)
		size += n
		if err == nil {
			err = target.Room(spoolStep)
		}
		var failed *os.PathError
		switch {
		case errors.Is(err, io.EOF):
			return f, size, http.StatusOK, nil
		case errors.As(err, &failed), errors.Is(err, upkeep.ErrNoRoom):
			return nil, 0, http.StatusInsufficientStorage, errors.Join(err, f.Close())
		case err != nil:
			return nil, 0, http.StatusBadRequest, errors.Join(fmt.Errorf("the backup did not arrive as a whole: %w",
				err), f.Close())
		}
	}
}

// check reads the whole backup, to see that it is one and is not damaged.
func check(f *io.SectionReader, target Target) error {
	head := make([]byte, 16)
	n, _ := f.ReadAt(head, 0)
	for _, magic := range []string{"ZKSN", "\x1f\x8b", "\x82SNAPPY"} {
		if strings.HasPrefix(string(head[:n]), magic) {
			return errors.New("this is a snapshot of ZooKeeper: make a new server from it (zlockd restore FILE " +
				"--data-dir NEW), make a backup of that server (zlock backup), and restore that backup here")
		}
	}
	b, err := state.CheckBackup(f)
	if err != nil {
		return fmt.Errorf("the backup is not complete: %w; use another backup", err)
	}
	return target.Fits(b.Nodes, b.Bytes)
}
