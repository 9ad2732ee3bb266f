package main

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Bounds of the output to stderr.
const (
	logQueueBytes = 1 << 20
	logFlushTime  = time.Second // for the rest when the process ends
)

// logQueue stands in front of stderr. Loggers only append; one goroutine writes. A reader of
// stderr that stops or goes away costs log lines and nothing else: the queue counts them and
// reports them when there is room again.
type logQueue struct {
	w   io.Writer
	max int
	log *slog.Logger // reports lost lines; nil: no report

	mu    sync.Mutex
	news  sync.Cond // there is a line to write, or flush waits
	lines [][]byte
	bytes int // of lines, and of those being written
	total int64
	told  int64 // lost lines that were reported
	idle  chan struct{}
}

func newLogQueue(w io.Writer, max int) *logQueue {
	q := &logQueue{w: w, max: max}
	q.news.L = &q.mu
	go q.run()
	return q
}

// Write appends a line, or drops it if too much is waiting.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(line) > q.max {
		q.total++
		return len(line), nil
	}
	q.lines = append(q.lines, append([]byte(nil), line...))
	q.bytes += len(line)
	q.news.Signal()
	return len(line), nil
}

// lost returns how many lines were not written.
func (q *logQueue) lost() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// tellBy makes the queue report lost lines to log, which writes to the queue.
func (q *logQueue) tellBy(log *slog.Logger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = log
}

// run writes the queued lines. A write that fails loses its line.
func (q *logQueue) run() {
	for {
		q.mu.Lock()
		for len(q.lines) == 0 {
			if q.idle != nil {
				close(q.idle)
				q.idle = nil
			}
			q.news.Wait()
		}
		lines := q.lines
		q.lines = nil
		q.mu.Unlock()
		for _, line := range lines {
			_, err := q.w.Write(line)
			q.mu.Lock()
			q.bytes -= len(line)
			if err != nil {
				q.total++
			}
			q.mu.Unlock()
			if err == nil {
				q.tell()
			}
		}
	}
}

// tell logs how many lines were lost since its last report, if any.
func (q *logQueue) tell() {
	q.mu.Lock()
	log, n := q.log, q.total-q.told
	if log == nil || n == 0 || q.bytes > q.max/2 {
		q.mu.Unlock()
		return
	}
	q.told = q.total
	q.mu.Unlock()
	log.Warn(fmt.Sprintf("%d log lines were lost: they are not read fast enough", n))
}

// flush waits until the queue is written, but no longer than most.
func (q *logQueue) flush(most time.Duration) {
	q.mu.Lock()
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.news.Signal()
	q.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(most):
	}
}
