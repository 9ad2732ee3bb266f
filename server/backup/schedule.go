package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// DefaultKeep is how many backups a server keeps by default.
const DefaultKeep = 24

// Taker takes a server's backups. The servers of a cluster take theirs one
// after another: the interval is divided among them.
type Taker struct {
	Dir      string        // where backups are kept
	Interval time.Duration // between two
	Keep     int           // the newest so many, at least one
	ID       uint32
	Cluster  func() string         // the name of this server's cluster; empty while there is no state
	Source   func() Source         // nil while there is no state
	Place    func() (rank, of int) // of this server among those that take turns
	Now      func() time.Time      // the clock
	Tick     <-chan time.Time      // when Run looks at the clock
	Log      *slog.Logger
	// Patience is how long a disk may take nothing; default a minute.
	Patience time.Duration

	written chan error // of the file under way, by Run's goroutine alone; nil: there is none

	cluster string // of the files that are this Taker's; empty: it has not looked at the directory yet

	mu    sync.Mutex // of what follows
	begun time.Time
	news  State
}

// State is how the backups stand.
type State struct {
	Last          time.Time     // of the newest one; zero: none
	Age           time.Duration // of the newest one, or how long there should have been one
	Taken, Failed int64
	Err           string // why the newest try failed, empty if it did not
}

// State returns how the backups stand.
func (t *Taker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, from := t.news, t.news.Last
	if from.IsZero() {
		from = t.begun
	}
	s.Age = t.Now().Sub(from)
	return s
}

// Notice says that backups are missing, once two of them are.
func (t *Taker) Notice() string {
	s := t.State()
	if s.Age <= 2*t.Interval {
		return ""
	}
	return fmt.Sprintf("the newest backup in %s is %v old: %s", t.Dir, s.Age.Round(time.Second),
		cmp.Or(s.Err, "the server was not up, or not able to"))
}

// Run takes backups until ctx ends.
func (t *Taker) Run(ctx context.Context) {
	t.mu.Lock()
	t.begun = t.Now()
	t.mu.Unlock()
	done := t.slot(time.Time{})
	told := done // the last interval in which the server was not current, and that was told
	for {
		now := t.Now()
		if t.cluster == "" && t.Cluster() != "" {
			t.cluster = t.Cluster()
			t.look(now)
			done = t.slot(t.State().Last)
			told = done
		}
		if slot := t.slot(now); slot != done && t.cluster != "" && t.Source() != nil {
			if err := t.current(ctx); err == nil {
				done = slot
				t.take(ctx, now)
			} else if slot != told && ctx.Err() == nil {
				told = slot
				t.missed(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.Tick:
		}
	}
}

// current returns an error while this server's state is not that of its cluster, because it was removed or
// has no leader. A backup of it would have a fresh date and old content, and push out good ones. Run asks
// again at each tick.
func (t *Taker) current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return t.Source().Current(ctx)
}

// missed records and tells why there is no backup.
func (t *Taker) missed(err error) {
	t.mu.Lock()
	t.news.Failed++
	t.news.Err = err.Error()
	t.mu.Unlock()
	t.Log.Error("no backup taken", "dir", t.Dir, "err", err)
}

// look looks at what earlier lives of the server left.
func (t *Taker) look(now time.Time) {
	names, others := t.files(suffix + unfinished)
	for _, f := range names {
		if err := os.Remove(filepath.Join(t.Dir, f)); err != nil {
			t.Log.Warn("unfinished backup not removed", "err", err)
		}
	}
	names, more := t.list(now)
	if others += more; others > 0 {
		t.Log.Warn("the directory has backups of other clusters, or unreadable ones, with this server's id; they "+
			"stay until you remove them", "dir", t.Dir, "files", others, "cluster", t.cluster)
	}
	if len(names) == 0 {
		return
	}
	info, err := os.Stat(filepath.Join(t.Dir, names[len(names)-1]))
	if err == nil && !info.ModTime().After(now) {
		t.mu.Lock()
		t.news.Last = info.ModTime()
		t.mu.Unlock()
	}
}

// slot returns the number of the interval at a time; each server's intervals begin at another
// moment.
func (t *Taker) slot(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	rank, of := t.Place()
	return at.Add(-t.Interval/time.Duration(max(of, 1))*time.Duration(rank)).UnixNano() / int64(t.Interval)
}

// take takes one backup and records the result.
func (t *Taker) take(ctx context.Context, now time.Time) {
	begun := time.Now()
	file, err := t.backup(ctx, now)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		t.missed(err)
		return
	}
	t.mu.Lock()
	t.news.Taken++
	t.news.Err, t.news.Last = "", now
	t.mu.Unlock()
	t.Log.Info("backup taken", "file", file, "took", time.Since(begun).Round(time.Millisecond))
	if err := t.prune(now); err != nil {
		t.Log.Warn("old backup not removed", "err", err)
	}
}

var errHangs = errors.New("the disk does not respond")

// backup writes a file that is whole or not there. While it holds the state the server takes no
// snapshot, and the log grows: so it does not wait for a disk that hangs.
func (t *Taker) backup(ctx context.Context, now time.Time) (string, error) {
	if t.written != nil {
		select {
		case <-t.written: //nolint:errcheck // what came of it was told
			t.written = nil
		default:
			return "", fmt.Errorf("%w, and the last backup is still under way", errHangs)
		}
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b, err := t.Source().Backup(wait)
	if err != nil {
		return "", err
	}
	file := filepath.Join(t.Dir, t.name(now, b.Zxid))
	from, to := io.Pipe()
	t.written = make(chan error, 1)
	go func() {
		err := writeFile(ctx, file, from)
		from.CloseWithError(err)
		t.written <- err
	}()
	defer context.AfterFunc(ctx, func() { from.CloseWithError(ctx.Err()) })()
	p := &patient{to: to, from: from, limit: cmp.Or(t.Patience, time.Minute)}
	err = b.Write(p)
	b.Close()
	to.CloseWithError(err)
	select {
	case e := <-t.written:
		if t.written = nil; err == nil {
			err = e
		}
	case <-time.After(p.limit):
		err = cmp.Or(err, errHangs)
	case <-ctx.Done():
		err = ctx.Err()
		select {
		case <-t.written: //nolint:errcheck // it has removed its file
		case <-time.After(time.Second): // else the next start removes the file
		}
	}
	return file, err
}
