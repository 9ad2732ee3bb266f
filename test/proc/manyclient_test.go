package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// TestMain opens the sessions of a client process if the environment names servers. Otherwise it runs the
// tests.
func TestMain(m *testing.M) {
	if os.Getenv("ZLOCKD_MANY_SERVERS") == "" {
		os.Exit(m.Run())
	}
	n, _ := strconv.Atoi(os.Getenv("ZLOCKD_MANY_SESSIONS"))
	timeout, _ := time.ParseDuration(os.Getenv("ZLOCKD_MANY_TIMEOUT"))
	if err := runMany(strings.Split(os.Getenv("ZLOCKD_MANY_SERVERS"), ","), os.Getenv("ZLOCKD_MANY_NAME"), n,
		timeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// outcome is the report of a client process at its end.
type outcome struct {
	Lost       map[string]int // number of lost connections, by the address of their server
	First      time.Time      // when the first connection was lost
	Expired    int            // how many sessions expired
	Unattached int
	Away       []time.Duration // for how long sessions had no connection, each time
}

// manySession is one of the sessions of a client process.
type manySession struct {
	servers []string
	timeout time.Duration
	at      int
	node    string

	mu      sync.Mutex // guards the fields below
	c       *wire.Pipe // nil while the session has no connection
	lost    []string   // the servers whose connections were lost
	first   time.Time
	expired bool
	away    []time.Duration
}

// runMany opens n sessions at the servers in turn, and prints a line when all are open. It keeps the sessions
// alive until standard input ends.
func runMany(servers []string, name string, n int, timeout time.Duration) error {
	list := make([]*manySession, n)
	var opened sync.WaitGroup
	lane := make(chan struct{}, 32)
	errs := make(chan error, n)
	stop := make(chan struct{})
	var ended sync.WaitGroup
	for i := range list {
		s := &manySession{servers: servers, timeout: timeout, at: i % len(servers),
			node: fmt.Sprintf("/many/%s-%d", name, i)}
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
	o := outcome{Lost: map[string]int{}}
	for _, s := range list {
		s.mu.Lock()
		if s.c != nil {
			s.c.Drop() // without a close request: the session and its lock stay
		}
		switch {
		case s.expired:
			o.Expired++
		case s.c == nil:
			o.Unattached++
		}
		for _, server := range s.lost {
			o.Lost[server]++
		}
		if len(s.lost) > 0 && (o.First.IsZero() || s.first.Before(o.First)) {
			o.First = s.first
		}
		o.Away = append(o.Away, s.away...)
		s.mu.Unlock()
	}
	ended.Wait()
	return json.NewEncoder(os.Stdout).Encode(o)
}

// open() makes the session and its lock.
func (s *manySession) open() (err error) {
	if s.c, err = wire.OpenPipe(s.servers[s.at], s.timeout); err != nil {
		return err
	}
	s.c.SetDeadline(time.Now().Add(s.timeout))
	s.c.Create(s.node, nil, jute.FlagEphemeral)
	_, err = s.c.Do()
	return err
}

// keep() pings each third of the timeout. It attaches the session again whenever its connection ends or
// leaves two pings without an answer, as stock clients do.
func (s *manySession) keep(stop <-chan struct{}) {
	for pings := 0; ; {
		s.c.SetDeadline(time.Now().Add(s.timeout / 3))
		_, err := s.c.Next()
		select {
		case <-stop:
			return
		default:
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && pings < s.c.Pongs+2 {
			pings++
			s.c.SetDeadline(time.Now().Add(s.timeout / 3))
			s.c.Ping()
			err = s.c.Flush()
		}
		if err != nil {
			if !s.attach(stop) {
				return
			}
			pings = 0
		}
	}
}

// attach() tries one server after another until the session has a connection again, as clients do.
func (s *manySession) attach(stop <-chan struct{}) bool {
	began := time.Now()
	old := s.c
	old.Drop()
	s.mu.Lock()
	s.c, s.lost = nil, append(s.lost, s.servers[s.at])
	if s.first.IsZero() {
		s.first = began
	}
	s.mu.Unlock()
	for {
		s.at = (s.at + 1) % len(s.servers)
		c, err := wire.AttachPipe(s.servers[s.at], old.Session, old.Zxid)
		s.mu.Lock()
		if err == nil {
			s.c, s.away = c, append(s.away, time.Since(began))
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
		case <-time.After(rand.N(time.Second)): // Java's client also waits up to a second
		}
	}
}
