package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// Bounds of the output to stderr.
const (
	logQueueBytes = 1 << 20
	logQueueLines = 4096
	logFlushTime  = time.Second // for the rest when the process ends
)

// logQueue stands in front of stderr. Loggers only append; one goroutine writes. A reader of
// stderr that stops or goes away costs log lines and nothing else: the queue counts them and
// reports them when there is room again.
type logQueue struct {
	w     io.Writer
	max   int64
	log   atomic.Pointer[slog.Logger] // reports lost lines; nil: no report
	lines chan []byte                 // an empty one asks for flushed
	bytes atomic.Int64                // of lines, and of the one being written
	total atomic.Int64                // lost lines

	flushed chan struct{}
}

func newLogQueue(w io.Writer, max int64) *logQueue {
	q := &logQueue{w: w, max: max, lines: make(chan []byte, logQueueLines), flushed: make(chan struct{}, 1)}
	go q.run()
	return q
}

// Write appends a line, or drops it if too much is waiting.
func (q *logQueue) Write(line []byte) (int, error) {
	n := int64(len(line))
	if n == 0 {
		return 0, nil
	}
	if q.bytes.Add(n) <= q.max {
		select {
		case q.lines <- bytes.Clone(line):
			return len(line), nil
		default:
		}
	}
	q.bytes.Add(-n)
	q.total.Add(1)
	return len(line), nil
}

// lost returns how many lines were not written.
func (q *logQueue) lost() int64 { return q.total.Load() }

// tellBy makes the queue report lost lines to log, which writes to the queue.
func (q *logQueue) tellBy(log *slog.Logger) { q.log.Store(log) }

// run writes the queued lines. A write that fails loses its line.
func (q *logQueue) run() {
	told := int64(0) // lost lines that were reported
	for line := range q.lines {
		if len(line) == 0 {
			q.flushed <- struct{}{}
			continue
		}
		_, err := q.w.Write(line)
		left := q.bytes.Add(-int64(len(line)))
		if err != nil {
			q.total.Add(1)
			continue
		}
		if log, n := q.log.Load(), q.lost()-told; log != nil && n > 0 && left <= q.max/2 {
			told += n
			log.Warn(fmt.Sprintf("%d log lines were lost: they are not read fast enough", n))
		}
	}
}

// flush waits until the queue is written, but no longer than most.
func (q *logQueue) flush(most time.Duration) {
	end := time.After(most)
	select {
	case q.lines <- nil:
	case <-end:
		return
	}
	select {
	case <-q.flushed:
	case <-end:
	}
}

// newLogger returns a logger as the flags ask. check has accepted them.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
