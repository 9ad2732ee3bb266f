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
	logFlushTime  = time.Second // at the end of the process: how long to wait until all lines are written
)

// logQueue buffers stderr. Loggers put lines into the queue and never wait; one goroutine writes them. If
// stderr's reader stops or goes away, lines are lost, but the server continues. The queue counts the lost
// lines, and logs their number when it can.
type logQueue struct {
	w     io.Writer
	max   int64
	log   atomic.Pointer[slog.Logger] // to log how many lines were lost; nil: do not log that
	lines chan []byte                 // for an empty line, run() signals on `flushed`
	bytes atomic.Int64                // bytes of the queued lines and of the line being written
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

// lost() returns the number of lost lines.
func (q *logQueue) lost() int64 { return q.total.Load() }

// tellBy makes the queue report lost lines to `log`, which writes to the queue.
func (q *logQueue) tellBy(log *slog.Logger) { q.log.Store(log) }

// run() writes the queued lines. A write that fails loses its line.
func (q *logQueue) run() {
	told := int64(0) // how many lost lines the log has already told of
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
			log.Warn(fmt.Sprintf("%d log lines were lost: the reader of the log is too slow", n))
		}
	}
}

// flush() waits until the queue is written, but no longer than the time `most`.
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

// newLogger returns the logger that the flags ask for. The settings have already been checked.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
