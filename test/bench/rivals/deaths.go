package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// killHolders kills holders with one waiter each, and records how long the waiters still wait.
func (w *way) killHolders(rounds int) error {
	var waited []float64
	for n := range rounds {
		v, err := w.killHolder(fmt.Sprintf("/dies-%d", n))
		if err != nil {
			return fmt.Errorf("a killed holder: %w", err)
		}
		waited = append(waited, v)
	}
	digits := 1
	if slices.Max(waited) < 0.1 {
		digits = 4
	}
	w.cells = append(w.cells, span(waited, digits))
	return nil
}

func (w *way) killHolder(path string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	holder := exec.Command(self, "-hold", w.name, "-addr", w.addr, "-path", path)
	holder.Stderr = os.Stderr
	in, err := holder.StdinPipe() // when this process dies, the pipe closes and the holder ends
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		return 0, fmt.Errorf("the holder said %q: %w", line, err)
	}
	waiter, err := w.open(context.Background(), w.addr, path, time.Minute)
	if err != nil {
		return 0, err
	}
	defer waiter.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- waiter.lock(ctx) }()
	select {
	case err := <-got:
		return 0, fmt.Errorf("two hold: %w", err)
	case <-time.After(500 * time.Millisecond):
	}
	from := time.Now()
	if err := holder.Process.Kill(); err != nil {
		return 0, err
	}
	if err := <-got; err != nil {
		return 0, err
	}
	took := time.Since(from).Seconds()
	return took, waiter.unlock(ctx)
}

// threeServers replaces each service that can form a cluster by a cluster of three.
func threeServers(s *settings, dir string, ways []*way, stop func()) (func(), error) {
	for _, c := range startAll(s, dir, 3) {
		before := stop
		stop = func() { c.Close(); before() }
		i := slices.IndexFunc(ways, func(w *way) bool { return w.name == c.name })
		if i < 0 {
			continue
		}
		var addrs []string
		for _, server := range c.Servers {
			addrs = append(addrs, server.Client)
		}
		ways[i].addr = strings.Join(addrs, ",")
		ways[i].about += "; the server that was killed led three"
		ways[i].crash = func() ([]string, func() error, error) {
			leader, err := c.leader(c.Ensemble)
			if err != nil {
				return nil, nil, err
			}
			leader.Kill()
			return []string{c.addr(leader.ID), c.addr(leader.ID + 1)}, func() error {
				return errors.Join(leader.Spawn(), leader.WaitReady())
			}, nil
		}
	}
	return stop, nil
}

// killServers kills the server, or the leader of a cluster, while a client holds a lock. It notes how long it
// took until a new client had another lock, and whether the first client still held its lock.
func (w *way) killServers(rounds int) error {
	if w.crash == nil {
		w.cells = append(w.cells, "–", "–")
		return nil
	}
	var took []float64
	kept := 0
	for n := range rounds {
		v, held, err := w.killServer(n)
		if err != nil {
			return err
		}
		took = append(took, v)
		if held {
			kept++
		}
	}
	hold := fmt.Sprintf("kept in %d of %d", kept, rounds)
	switch kept {
	case rounds:
		hold = "kept"
	case 0:
		hold = "**lost**"
	}
	w.cells = append(w.cells, span(took, 0), hold)
	return nil
}

func (w *way) killServer(round int) (took float64, held bool, err error) {
	path := fmt.Sprintf("/held-%d", round)
	holder, err := w.open(context.Background(), w.addr, path, time.Minute)
	if err != nil {
		return 0, false, err
	}
	defer holder.close()
	if err := holder.lock(context.Background()); err != nil {
		return 0, false, err
	}
	next, restore, err := w.crash()
	if err != nil {
		return 0, false, err
	}
	took, err = firstOf(func(ctx context.Context, n int) error {
		return lockOnce(ctx, w.open, next[n%len(next)], fmt.Sprintf("/new-%d-%d", round, n))
	})
	if err != nil {
		return 0, false, err
	}
	if err := restore(); err != nil {
		return 0, false, err
	}
	time.Sleep(time.Second) // time for the holder's client to connect again
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	other, err := w.open(ctx, w.addr, path, time.Minute)
	if err != nil {
		return 0, false, err
	}
	defer other.close()
	err = other.lock(ctx)
	if err != nil && ctx.Err() == nil {
		return 0, false, fmt.Errorf("another client at the lock: %w", err)
	}
	return took, err != nil, nil
}
