package client

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// hosts gives the library one server after another. Names are resolved by each
// dial, so an address may change and a server that is down does no harm.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	failed  int // attempts since a connection was last of use
	closing chan struct{}
}

// parseServers splits "h1:2181,h2/chroot" into addresses and the chroot.
func parseServers(s string) (servers []string, chroot string, err error) {
	list, root, found := strings.Cut(s, "/")
	if found {
		chroot = "/" + strings.TrimRight(root, "/")
		if chroot == "/" {
			chroot = ""
		}
	}
	for _, h := range strings.Split(list, ",") {
		h = strings.TrimSpace(h)
		if h == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "2181")
		}
		servers = append(servers, h)
	}
	if len(servers) == 0 {
		return nil, "", fmt.Errorf("%w: no server in %q", ErrInvalid, s)
	}
	if chroot != "" {
		if err := checkPath(chroot); err != nil {
			return nil, "", err
		}
	}
	return servers, chroot, nil
}

func newHosts(servers []string, closing chan struct{}) *hosts {
	servers = append([]string(nil), servers...)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	return &hosts{servers: servers, closing: closing}
}

// Init is called by the library; the servers are known already.
func (h *hosts) Init([]string) error { return nil }

// Len returns the number of servers.
func (h *hosts) Len() int { return len(h.servers) }

// Next returns the next server. The library looks whether it was told to quit
// only when the second result is true.
func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	s := h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	h.failed++
	// Each server once without delay, then rounds further and further apart.
	round := (h.failed - 1) / len(h.servers)
	first := (h.failed-1)%len(h.servers) == 0
	h.mu.Unlock()
	if round > 0 && first {
		t := time.NewTimer(backoff(round, 50*time.Millisecond, time.Second))
		defer t.Stop()
		select {
		case <-t.C:
		case <-h.closing:
		}
	}
	select {
	case <-h.closing:
		return s, true
	default:
		return s, false
	}
}

// Connected is called by the library when it has a session. That is not yet a
// success: a server that takes connections and drops them must not be asked in a
// tight loop.
func (h *hosts) Connected() {}

// good notes that a heartbeat was answered.
func (h *hosts) good() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = 0
}

// backoff is the delay before attempt n (1, 2, …): doubling from first to last,
// give or take a quarter.
func backoff(n int, first, last time.Duration) time.Duration {
	d := last
	if n < 16 {
		d = min(last, first<<(n-1))
	}
	return d*3/4 + rand.N(d/2+1)
}
