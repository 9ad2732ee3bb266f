package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// manyTimeout is what each session asks for.
const manyTimeout = 30 * time.Second

// TestMain runs the sessions of one client process, if it is one.
func TestMain(m *testing.M) {
	if os.Getenv("ZLOCKD_MANY_SERVERS") == "" {
		os.Exit(m.Run())
	}
	n, _ := strconv.Atoi(os.Getenv("ZLOCKD_MANY_SESSIONS"))
	if err := runMany(strings.Split(os.Getenv("ZLOCKD_MANY_SERVERS"), ","), os.Getenv("ZLOCKD_MANY_NAME"),
		n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// outcome is what a client process tells at its end.
type outcome struct {
	Lost       int           // connections
	Expired    int           // sessions
	Longest    time.Duration // from the end of a connection to the next one of its session
	Median     time.Duration
	Unattached int
}

// session is one of them.
type manySession struct {
	servers []string
	at      int
	node    string

	mu      sync.Mutex // of what is looked at from outside
	c       *wire.Pipe // nil while it has none
	lost    bool
	expired bool
	away    time.Duration
}

// run opens n sessions, the ith at server i of those given, says so, and keeps
// them alive until its input ends.
func runMany(servers []string, name string, n int) error {
	list := make([]*manySession, n)
	var opened sync.WaitGroup
	lane := make(chan struct{}, 32)
	errs := make(chan error, n)
	stop := make(chan struct{})
	var ended sync.WaitGroup
	for i := range list {
		s := &manySession{servers: servers, at: i % len(servers), node: fmt.Sprintf("/many/%s-%d", name, i)}
		list[i] = s
		lane <- struct{}{}
		opened.Add(1)
		ended.Go(func() {
			err := s.open()
			<-lane
			opened.Done()
			if err != nil {
				errs <- err
				return
			}
			s.keep(stop)
		})
	}
	opened.Wait()
	if len(errs) > 0 {
		return <-errs
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(stop)
	var o outcome
	var away []time.Duration
	for _, s := range list {
		s.mu.Lock()
		if s.c != nil {
			s.c.Drop() // without a word: the session and its lock stay
		}
		switch {
		case s.expired:
			o.Expired++
		case s.c == nil:
			o.Unattached++
		case s.lost:
			o.Lost++
			away = append(away, s.away)
		}
		s.mu.Unlock()
	}
	ended.Wait()
	if len(away) > 0 {
		slices.Sort(away)
		o.Longest, o.Median = away[len(away)-1], away[len(away)/2]
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// open makes the session and its lock.
func (s *manySession) open() (err error) {
	if s.c, err = wire.OpenPipe(s.servers[s.at], manyTimeout); err != nil {
		return err
	}
	s.c.SetDeadline(time.Now().Add(manyTimeout))
	s.c.Create(s.node, nil, jute.FlagEphemeral)
	_, err = s.c.Do()
	return err
}

// keep pings, and attaches the session again whenever its connection ends.
func (s *manySession) keep(stop <-chan struct{}) {
	for {
		s.c.SetDeadline(time.Now().Add(manyTimeout / 3))
		_, err := s.c.Next()
		select {
		case <-stop:
			return
		default:
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.c.SetDeadline(time.Now().Add(manyTimeout / 3))
			s.c.Ping()
			if err = s.c.Flush(); err == nil {
				continue
			}
		}
		if err != nil && !s.attach(stop) {
			return
		}
	}
}

// attach finds the session a server, as clients do.
func (s *manySession) attach(stop <-chan struct{}) bool {
	began := time.Now()
	old := s.c
	old.Drop()
	s.mu.Lock()
	s.c, s.lost = nil, true
	s.mu.Unlock()
	for {
		s.at = (s.at + 1) % len(s.servers)
		c, err := wire.AttachPipe(s.servers[s.at], manyTimeout, old.Session, old.Password, old.Zxid)
		s.mu.Lock()
		if err == nil {
			s.c, s.away = c, max(s.away, time.Since(began))
		} else if errors.Is(err, wire.ErrRefused) {
			s.expired = true
		}
		s.mu.Unlock()
		if err == nil || s.expired {
			return err == nil
		}
		select {
		case <-stop:
			return false
		case <-time.After(rand.N(time.Second)): // as Java's client does
		}
	}
}
