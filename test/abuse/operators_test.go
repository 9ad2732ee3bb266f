package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// adminPages are the answers of the admin port that grow with what clients do.
var adminPages = []string{"/", "/metrics", "/health", "/members", "/locks", "/locks/abuse/list", "/sessions",
	"/sessions/ended", "/top", "/wait-graph", "/tree/abuse/list", "/commands", "/commands/monitor",
	"/commands/connections", "/commands/dump", "/commands/watches", "/commands/watches_by_path",
	"/commands/watch_summary", "/commands/configuration", "/commands/environment"}

// operatorAttacks make answers to operators large or slow. Some read the admin pages slowly; others make many
// watches, locks and ends of sessions.
var operatorAttacks = []attack{
	{"slow readers of every admin page", func(a *attacker) {
		a.each(4*len(adminPages)*len(a.All), func(i int) error {
			return a.raw(a.All[i%len(a.All)].Admin, func(c net.Conn) error {
				_ = c.(*net.TCPConn).SetReadBuffer(4096)
				page := adminPages[i/len(a.All)%len(adminPages)]
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", page)
				return hold(c)
			})
		})
	}},
	{"mass ends of sessions", func(a *attacker) {
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, i int) error {
			if err := many(c, 2000, func(k int) []byte {
				path := fmt.Sprintf("/abuse/end-%d-%d-%d", c.LocalAddr().(*net.TCPAddr).Port, i, k)
				return wire.Create(path, nil, jute.WorldAnyone, jute.FlagEphemeral)
			}); err != nil {
				return err
			}
			_, err := c.Call(jute.OpCloseSession, nil)
			return err
		})
	}},
	{"refused deletes of long paths", func(a *attacker) {
		long := strings.Repeat("d", 60_000)
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, i int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpDelete, wire.PathVersion(fmt.Sprintf("/%s%d-%d", long, i, k), -1))
			})
		})
	}},
	{"12,000 nodes that 45 sessions watch", func(a *attacker) {
		path := func(k int) string { return fmt.Sprintf("/abuse/watched%d", k) }
		err := a.session(a.Leader, func(c *wire.Conn) error {
			return many(c, 12_000, func(k int) []byte { return wire.Create(path(k), nil, jute.WorldAnyone, 0) })
		})
		if err != nil {
			fmt.Println("12,000 nodes:", err)
		}
		a.looked(func() {
			a.sessions(45, []target{a.Leader}, func(c *wire.Conn, _ int) error {
				go io.Copy(io.Discard, c)
				for k := range 12_000 {
					if err := c.WriteRaw(request(k, jute.OpExists, wire.PathWatch(path(k), true))); err != nil {
						return err
					}
				}
				<-a.ctx.Done()
				return nil
			})
		})
	}},
	{"a lock with 500 holders and 500 waiters", func(a *attacker) {
		a.looked(func() {
			a.sessions(4, []target{a.Leader}, func(c *wire.Conn, i int) error {
				dir := fmt.Sprintf("/abuse/policy%d-%d", i, c.LocalAddr().(*net.TCPAddr).Port)
				id := func(k int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", k) }
				err := many(c, 1001, func(k int) []byte {
					switch {
					case k == 0:
						return wire.Create(dir, nil, jute.WorldAnyone, 0)
					case k <= 500:
						return wire.Create(dir+"/h-"+id(k)+"-R", nil, jute.WorldAnyone, jute.FlagEphemeral)
					}
					return wire.Create(dir+"/q-"+id(k)+"-W-", nil, jute.WorldAnyone,
						jute.FlagEphemeralSequential)
				})
				if err != nil {
					return err
				}
				return hold(c)
			})
		})
	}},
}

// many() makes n nodes, 500 in a transaction.
func many(c *wire.Conn, n int, create func(k int) []byte) error {
	for k := 0; k < n; {
		var ops []wire.Op
		for ; k < n && len(ops) < 500; k++ {
			ops = append(ops, wire.Op{Type: jute.OpCreate, Body: create(k)})
		}
		if f, err := c.Call(jute.OpMulti, wire.Multi(ops...)); err != nil || f.Code != jute.OK {
			return errors.Join(fmt.Errorf("%d nodes: %v", n, f.Code), err)
		}
	}
	return nil
}

// looked() runs f while the attacker asks the leader for all lists of locks and watches.
func (a *attacker) looked(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for a.ctx.Err() == nil {
			for _, word := range []string{"mntr", "wchs", "stat"} {
				_ = a.raw(a.Leader.Client, func(c net.Conn) error {
					_, _ = io.WriteString(c, word)
					_, err := io.Copy(io.Discard, c)
					return err
				})
			}
			for _, page := range []string{"/metrics", "/locks", "/wait-graph", "/top"} {
				_ = a.raw(a.Leader.Admin, func(c net.Conn) error {
					fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", page)
					_, err := io.Copy(io.Discard, c)
					return err
				})
			}
			a.pause(100 * time.Millisecond)
		}
	})
	f()
	wg.Wait()
}

// The type scrapes sends each server the requests of a monitoring system each second, from an address that is
// not the attacker's.
type scrapes struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	asked   int
	slowest time.Duration
	trouble error // the first error
}

// patience is how long the monitoring waits for an answer, as Prometheus does.
const patience = 10 * time.Second

func startScrapes(c *cluster.Ensemble) *scrapes {
	s := &scrapes{}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	for _, one := range c.Servers {
		to := targetOf(one)
		s.wg.Go(func() {
			for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
				for _, page := range []string{"/metrics", "/"} {
					s.ask(ctx, func(ctx context.Context) error { return getPage(ctx, "http://"+to.Admin+page) })
				}
				s.ask(ctx, func(ctx context.Context) error { return askMntr(ctx, to.Client) })
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return s
}

func (s *scrapes) ask(ctx context.Context, f func(context.Context) error) {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	err := f(limit)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.slowest = max(s.slowest, time.Since(begin))
	if err != nil && s.trouble == nil {
		s.trouble = err
	}
}

// take() returns the scrapes since the last call of take().
func (s *scrapes) take() (asked int, slowest time.Duration, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, slowest, trouble = s.asked, s.slowest, s.trouble
	s.asked, s.slowest, s.trouble = 0, 0, nil
	return asked, slowest, trouble
}

func (s *scrapes) stop() {
	s.cancel()
	s.wg.Wait()
}

func getPage(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, r.Status)
	}
	return nil
}

func askMntr(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := io.WriteString(c, "mntr"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if !strings.Contains(string(text), "zk_version") {
		return errors.Join(fmt.Errorf("mntr of %s answers %.80q", addr, text), err)
	}
	return nil
}
