package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// traceTime is how long servers are traced; traceLead is how long writes go on
// before that, so that everything is warm.
const (
	traceTime = 300 * time.Millisecond
	traceLead = time.Second
)

// traced is one write, by the machine's monotonic clock, which Go's execution
// traces are timed by: so the traces of several processes fit together.
type traced struct{ sent, answered int64 }

// traceWrite prints one lone write hop by hop: which goroutine of which server
// ran when, for how long, what it asked of the kernel and whom it woke.
func (c *config) traceWrite(out io.Writer) error {
	s, err := newSide(c.a, c)
	if err != nil {
		return err
	}
	defer s.close()
	if s.options.Kind != cluster.Zlockd || s.external != nil {
		return errors.New("-trace-write needs a zlockd that it can start: -a zlockd or zlockd@BINARY")
	}
	e, err := s.fresh(func(o *cluster.Options) { o.Flags = append(o.Flags, "--pprof") })
	if err != nil {
		return err
	}
	defer e.Close()
	at, err := c.traceAt(e)
	if err != nil {
		return err
	}
	conn, err := wire.OpenPipe(at.Client, sessionTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	path := c.unique("trace")
	if err := makeNodes(conn, []string{path}); err != nil {
		return err
	}
	type trace struct {
		hops []hop
		err  error
	}
	traces := make(chan trace, len(e.Servers))
	for _, v := range e.Servers {
		go func() {
			time.Sleep(traceLead)
			hops, err := traceServer(v)
			traces <- trace{hops, err}
		}()
	}
	var writes []traced
	for end := time.Now().Add(traceLead + traceTime); time.Now().Before(end); {
		w := traced{sent: monotonic()}
		conn.Set(path, payload)
		r, err := conn.Do()
		if err == nil && r.Err != 0 {
			err = r.Err
		}
		if err != nil {
			return err
		}
		w.answered = monotonic()
		writes = append(writes, w)
	}
	var hops []hop
	var from, to int64 // of what all traces cover
	for range e.Servers {
		t := <-traces
		if t.err != nil {
			return t.err
		}
		if len(t.hops) == 0 {
			return errors.New("a server's trace is empty")
		}
		from = max(from, t.hops[0].at)
		if last := t.hops[len(t.hops)-1].at; to == 0 || last < to {
			to = last
		}
		hops = append(hops, t.hops...)
	}
	w, n, ok := medianWrite(writes, from, to)
	if !ok {
		return errors.New("no write lies within the traces; try again")
	}
	fmt.Fprintf(out, "%d servers on this machine, the client at server %d, %s. Of %d writes one after the "+
		"other this is the median: %.1f µs.\n\n",
		len(e.Servers), at.ID, machine(), n, micros(w.answered-w.sent))
	printHops(out, hops, w)
	return nil
}

// traceAt is the server that writes go to: the leader.
func (c *config) traceAt(e *cluster.Ensemble) (*cluster.Server, error) {
	for _, v := range e.Servers {
		if mode := cluster.Word(v.Client, "srvr"); strings.Contains(mode, "Mode: leader") ||
			strings.Contains(mode, "Mode: standalone") {
			return v, nil
		}
	}
	return nil, errors.New("no server leads")
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// traceServer fetches the execution trace of a server, and reads it with the Go
// tool.
func traceServer(v *cluster.Server) ([]hop, error) {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%v", v.Admin, traceTime.Seconds()))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("trace of server %d: %s", v.ID, resp.Status)
	}
	file := filepath.Join(v.Dir, "trace")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, err
	}
	var text, problem bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tool := exec.CommandContext(ctx, "go", "tool", "trace", "-d=parsed", file)
	tool.Stdout, tool.Stderr = &text, &problem
	if err := tool.Run(); err != nil {
		return nil, fmt.Errorf("go tool trace: %w: %s", err, problem.Bytes())
	}
	return readHops(&text, fmt.Sprint(v.ID))
}

// medianWrite is the write of median duration among those within the traces.
func medianWrite(writes []traced, from, to int64) (w traced, n int, ok bool) {
	writes = slices.DeleteFunc(writes, func(w traced) bool { return w.sent < from || w.answered > to })
	if len(writes) == 0 {
		return w, 0, false
	}
	slices.SortFunc(writes, func(a, b traced) int { return cmp.Compare(a.answered-a.sent, b.answered-b.sent) })
	return writes[len(writes)/2], len(writes), true
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// printHops prints what ran during a write.
func printHops(out io.Writer, hops []hop, w traced) {
	slices.SortFunc(hops, func(a, b hop) int { return cmp.Compare(a.at, b.at) })
	fmt.Fprintf(out, "%9s %9s  %-6s  %s\n", "at µs", "ran µs", "server", "what")
	fmt.Fprintf(out, "%9.1f %9s  %-6s  the request is sent\n", 0.0, "", "client")
	for _, h := range hops {
		if h.end < w.sent || h.at > w.answered {
			continue
		}
		fmt.Fprintf(out, "%9.1f %9.1f  %-6s  %s\n", micros(h.at-w.sent), micros(h.end-h.at), h.server, h.what())
	}
	fmt.Fprintf(out, "%9.1f %9s  %-6s  the answer is read\n", micros(w.answered-w.sent), "", "client")
}
