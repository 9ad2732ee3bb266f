package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// DefaultKeep is how many backups a server keeps by default.
const DefaultKeep = 24

// State returns the state of the backups.
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

// Notice returns a notice if the newest attempt has failed, or if the newest backup is older than two
// intervals.
func (t *Taker) Notice() string {
	s := t.State()
	newest := "there is none yet"
	if !s.Last.IsZero() {
		newest = fmt.Sprintf("the newest is %v old", s.Age.Round(time.Second))
	}
	switch {
	case s.Err != "":
		return fmt.Sprintf("backups in %s have failed since %s, and %s: %s", t.Dir,
			s.Since.UTC().Format(time.RFC3339), newest, s.Err)
	case s.Age > 2*t.Interval:
		return fmt.Sprintf("backups in %s are missing, and %s: the server was down, or could not take them", t.Dir,
			newest)
	}
	return ""
}

// Run takes backups until ctx ends.
func (t *Taker) Run(ctx context.Context) {
	t.mu.Lock()
	t.begun = t.Now()
	t.mu.Unlock()
	done := t.slot(time.Time{})
	told := done // the interval in which the log was last told that the server is not current
	for {
		now := t.Now()
		if t.cluster == "" && t.Cluster() != "" {
			t.cluster = t.Cluster()
			t.look(now)
			done = t.slot(t.State().Last)
			told = done
		}
		if slot := t.slot(now); slot != done && t.cluster != "" && t.Source() != nil && t.due(now) {
			switch err := t.current(ctx); {
			case err == nil && t.take(ctx, now):
				done = slot
			case err != nil && slot != told && ctx.Err() == nil:
				told = slot
				t.missed(now, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.Tick:
		}
	}
}

// current() returns an error if the server may have an old state: it was removed, or has no leader. An old
// state in a backup with a new date would take the place of a good backup. After an error, Run() tries again
// at the next tick.
func (t *Taker) current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return t.Source().Current(ctx)
}

// missed records that there is no backup now, and logs why.
func (t *Taker) missed(now time.Time, err error) {
	t.mu.Lock()
	if t.news.Err == "" {
		t.news.Since = now
	}
	t.news.Failed++
	t.news.Err = err.Error()
	t.mu.Unlock()
	t.Log.Error("no backup taken", "dir", t.Dir, "err", err)
}

// firstPause is the pause after an attempt that has failed. After each further failure the pause is twice as
// long, at most an interval.
const firstPause = time.Minute

// due() reports whether the pause after a failure is over. It also ends when the clock is set back to before
// the failure.
func (t *Taker) due(now time.Time) bool {
	return now.Sub(t.failed) >= t.pause || now.Before(t.failed)
}

// look finds the backups that this server took before its last restart. It removes unfinished ones.
func (t *Taker) look(now time.Time) {
	names, others := t.files(suffix + unfinished)
	for _, f := range names {
		if err := os.Remove(filepath.Join(t.Dir, f)); err != nil {
			t.Log.Warn("unfinished backup not removed", "err", err)
		}
	}
	names, more := t.list(now)
	if others += more; others > 0 {
		t.Log.Warn("the directory has backups of other clusters, or unreadable ones, with this server's id; "+
			"they stay until you remove them", "dir", t.Dir, "files", others, "cluster", t.cluster)
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

// slot returns the number of the interval that a time is in. The intervals of each server begin at another
// moment.
func (t *Taker) slot(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	rank, of := t.Place()
	return at.Add(-t.Interval/time.Duration(max(of, 1))*time.Duration(rank)).UnixNano() / int64(t.Interval)
}

// take takes one backup, records the result, and returns whether it succeeded.
func (t *Taker) take(ctx context.Context, now time.Time) bool {
	begun := time.Now()
	file, err := t.backup(ctx, now)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		t.failed, t.pause = now, min(max(2*t.pause, firstPause), t.Interval)
		t.missed(now, err)
		return false
	}
	t.pause = 0
	t.mu.Lock()
	t.news.Taken++
	t.news.Err, t.news.Last, t.news.Since = "", now, time.Time{}
	t.mu.Unlock()
	t.Log.Info("backup taken", "file", file, "took", time.Since(begun).Round(time.Millisecond))
	if err := t.prune(now); err != nil {
		t.Log.Warn("old backup not removed", "err", err)
	}
	return true
}

// backup() writes a backup into a file. The file gets its final name only when it is complete. While a backup
// is written, the server takes no snapshot, so its log grows. So backup() gives up if the disk hangs.
func (t *Taker) backup(ctx context.Context, now time.Time) (string, error) {
	if t.written != nil {
		select {
		case <-t.written: //nolint:errcheck // the failure of this file was reported before
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
		case <-t.written: //nolint:errcheck // writeFile has removed its file
		case <-time.After(time.Second): // do not wait longer: the next start removes the unfinished file
		}
	}
	return file, err
}
