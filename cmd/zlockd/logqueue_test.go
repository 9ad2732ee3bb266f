package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestLogQueueNeverBlocksAndTellsWhatItLost(t *testing.T) {
	r, w := io.Pipe()
	q := newLogQueue(w, 4096)
	log := slog.New(slog.NewTextHandler(q, nil))
	q.tellBy(log)
	for i := range 1000 { // nobody reads
		log.Info("line", "i", i)
	}
	if n := q.lost(); n < 850 || n > 999 {
		t.Errorf("%d lost", n)
	}
	lost := q.lost()
	got := new(buffer)
	go io.Copy(got, r)
	got.waitFor(t, fmt.Sprintf(`msg="%d log lines were lost`, lost))
	log.Info("after")
	got.waitFor(t, "msg=after")
	q.flush(10 * time.Second)
	if lines := strings.Count(got.String(), "\n"); lines != 1000-int(lost)+2 || q.lost() != lost {
		t.Errorf("%d lines written, %d lost, then %d", lines, lost, q.lost())
	}
	if !strings.Contains(got.String(), "msg=line i=0\n") || strings.Count(got.String(), "were lost") != 1 {
		t.Errorf("written:\n%s", got)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestLogQueueOutlivesItsReader(t *testing.T) {
	q := newLogQueue(failing{}, 1<<20)
	for range 10 {
		io.WriteString(q, "line\n")
	}
	q.flush(10 * time.Second)
	expect.Equal(t, q.lost(), 10, "lost")
}

// stderrPipe is a zlockd whose stderr is a pipe of ours.
func stderrPipe(t *testing.T, fill bool) (p *daemonProcess, r *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must.OK(t, err)
	t.Cleanup(func() { r.Close() })
	if fill {
		fd := int(w.Fd()) // which makes it block
		must.OK(t, syscall.SetNonblock(fd, true))
		for chunk := bytes.Repeat([]byte("x"), 4096); err == nil; {
			_, err = syscall.Write(fd, chunk)
		}
		must.OK(t, syscall.SetNonblock(fd, false))
	}
	p = prepare("--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-level", "debug")
	p.cmd.Stderr = w
	p.begin(t)
	w.Close()
	p.wait(t)
	return p, r
}

// busy makes the server log a lot.
func (p *daemonProcess) busy(t *testing.T) {
	t.Helper()
	for range 200 {
		c := must.Get(wire.Open(p.ready["client"]))(t)
		must.Get(c.Create("/a-", nil, 2))(t)
		c.Close()
	}
}

func TestServerWhoseLogNobodyReadsGoesOn(t *testing.T) {
	p, _ := stderrPipe(t, true)
	p.busy(t)
	expect.Equal(t, p.stop(t), 0, "exit code")
}

func TestServerWhoseLogReaderHasGoneGoesOn(t *testing.T) {
	p, r := stderrPipe(t, false)
	r.Close()
	p.busy(t)
	if code, text := p.get(t, "/metrics"); code != 200 ||
		!strings.Contains(text, "\nzlockd_log_lines_lost_total ") ||
		strings.Contains(text, "\nzlockd_log_lines_lost_total 0\n") {
		t.Error("the metrics tell of no lost line")
	}
	expect.Equal(t, p.stop(t), 0, "exit code")
}
