package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// connectTime bounds the wait for a session, and for its end.
const connectTime = 30 * time.Second

// session is one client of the bench.
type session struct {
	lock    func(ctx context.Context, path string, shared bool) (grant, error)
	cost    func() cost
	close   func()
	timeout time.Duration
	faults  *faultproxy.Proxy // the proxy on the way to the servers; nil without faults
}

// cost is what a session sent and received, without heartbeats and pings.
type cost struct{ requests, events, bytes uint64 }

func (c cost) minus(d cost) cost {
	return cost{c.requests - d.requests, c.events - d.events, c.bytes - d.bytes}
}

func costs(sessions []session) (sum cost) {
	for _, s := range sessions {
		c := s.cost()
		sum.requests += c.requests
		sum.events += c.events
		sum.bytes += c.bytes
	}
	return sum
}

func openSession(ctx context.Context, b *benchFlags) (session, error) {
	if b.raw() {
		return openRaw(ctx, b, &wiretap{})
	}
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	servers, faults, ended := b.servers, (*faultproxy.Proxy)(nil), func() {}
	if b.Fault == "cut" || b.Fault == "expire" {
		list := strings.Split(b.servers, ",")
		var err error
		if faults, err = faultproxy.New(list[0]); err != nil {
			return session{}, err
		}
		faults.SetTarget(list...)
		servers, ended = faults.Addr(), faults.Close
	}
	cl, err := client.Dial(limited, servers, client.WithSessionTimeout(b.sessionTimeout))
	if err != nil {
		ended()
		return session{}, err
	}
	conn, err := cl.Conn(limited)
	if err != nil {
		ended()
		return session{}, err
	}
	counters, locks := conn.Counters(), b.locksOf(cl)
	return session{
		faults: faults, timeout: cl.Session().Timeout, close: func() {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTime)
			defer cancel()
			cl.Close(limited)
			ended()
		},
		cost: func() cost {
			n := counters // these include an occasional heartbeat
			return cost{n.Requests.Load(), n.Events.Load(), n.BytesSent.Load() + n.BytesRead.Load()}
		},
		lock: func(ctx context.Context, path string, shared bool) (grant, error) {
			l, err := locks(ctx, path, shared)
			if err != nil {
				return grant{}, err
			}
			release := l.Unlock
			if b.Recipe == "mutex-early" {
				release = func(context.Context) error { return l.Release() }
			}
			return grant{token: l.Token(), mode: l.Mode(), valid: l.Valid, release: release}, nil
		},
	}, nil
}

// locksOf returns the function that takes a client's locks by the recipe; it creates each lock
// object once.
func (b *benchFlags) locksOf(cl *client.Client) func(context.Context, string, bool) (*client.Lease, error) {
	var opts []client.Option
	switch b.Recipe {
	case "rw", "policy":
		if p, err := recipe.ParsePolicy(b.Policy); b.Recipe == "policy" && err == nil {
			opts = append(opts, client.WithPolicy(p))
		}
		return func(ctx context.Context, path string, shared bool) (*client.Lease, error) {
			if shared {
				return cl.RWMutex(path, opts...).RLock(ctx)
			}
			return cl.RWMutex(path, opts...).Lock(ctx)
		}
	case "sem":
		return func(ctx context.Context, path string, _ bool) (*client.Lease, error) {
			return cl.Semaphore(path, 2, opts...).Acquire(ctx, 1)
		}
	}
	return func(ctx context.Context, path string, _ bool) (*client.Lease, error) {
		return cl.Mutex(path, opts...).Lock(ctx)
	}
}

// openRaw opens a session of go-zookeeper, for the two recipes to which those of package client are compared.
func openRaw(ctx context.Context, b *benchFlags, tap *wiretap) (session, error) {
	raw, events, err := zk.Connect(strings.Split(b.servers, ","), b.sessionTimeout,
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			nc, err := net.DialTimeout(network, address, timeout)
			if err != nil {
				return nil, err
			}
			return &tapped{Conn: nc, w: tap}, nil
		}))
	if err != nil {
		return session{}, err
	}
	limit := time.After(connectTime)
	for ready := false; !ready; {
		select {
		case ev := <-events:
			ready = ev.State == zk.StateHasSession
		case <-limit:
			raw.Close()
			return session{}, fmt.Errorf("no usable session with %s within %v", b.servers, connectTime)
		case <-ctx.Done():
			raw.Close()
			return session{}, context.Cause(ctx)
		}
	}
	lock := goLock(raw)
	if b.Recipe == "children-watch" {
		lock = herdLock(raw)
	}
	return session{
		timeout: b.sessionTimeout, close: raw.Close, cost: tap.cost,
		lock: func(ctx context.Context, path string, _ bool) (grant, error) { return lock(ctx, path) },
	}, nil
}

// goLock is go-zookeeper's own Lock. It ignores contexts, so at its end a run waits for the workers that are
// still in the queue.
func goLock(raw *zk.Conn) func(context.Context, string) (grant, error) {
	return func(_ context.Context, path string) (grant, error) {
		l := zk.NewLock(raw, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return grant{}, err
		}
		return grant{mode: fence.Exclusive, valid: func() bool { return true },
			release: func(context.Context) error { return l.Unlock() }}, nil
	}
}

// herdLock is the queue in which every waiter watches the directory, so that each
// release wakes all of them. It is safe only as long as no reply is lost.
func herdLock(raw *zk.Conn) func(context.Context, string) (grant, error) {
	acl := zk.WorldACL(zk.PermAll)
	create := func(path string) (string, error) {
		return raw.Create(path+"/herd-", nil, zk.FlagEphemeralSequential, acl)
	}
	return func(ctx context.Context, path string) (grant, error) {
		node, err := create(path)
		for errors.Is(err, zk.ErrNoNode) {
			for i := 1; i <= len(path); i++ {
				if i == len(path) || path[i] == '/' {
					if _, err := raw.Create(path[:i], nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
						return grant{}, err
					}
				}
			}
			node, err = create(path)
		}
		if err != nil {
			return grant{}, err
		}
		remove := func() error { return raw.Delete(node, -1) }
		for {
			names, _, changed, err := raw.ChildrenW(path)
			if err != nil {
				return grant{}, errors.Join(err, remove())
			}
			slices.Sort(names)
			if path+"/"+names[0] == node {
				return grant{mode: fence.Exclusive, valid: func() bool { return true },
					release: func(context.Context) error { return remove() }}, nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return grant{}, errors.Join(context.Cause(ctx), remove())
			}
		}
	}
}

// wiretap counts the frames of its connections.
type wiretap struct{ requests, pings, events, bytes atomic.Uint64 }

func (w *wiretap) cost() cost {
	return cost{w.requests.Load() - w.pings.Load(), w.events.Load(), w.bytes.Load()}
}

// The type tapped is one connection.
type tapped struct {
	net.Conn
	w   *wiretap
	in  framer
	out framer
}

func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.w.bytes.Add(uint64(n))
	t.in.feed(b[:n], func(head []byte) {
		if int32(binary.BigEndian.Uint32(head)) == -1 { // xid of watch events
			t.w.events.Add(1)
		}
	})
	return n, err
}

func (t *tapped) Write(b []byte) (int, error) {
	t.w.bytes.Add(uint64(len(b)))
	t.out.feed(b, func(head []byte) {
		t.w.requests.Add(1)
		if int32(binary.BigEndian.Uint32(head)) == -2 { // xid of pings
			t.w.pings.Add(1)
		}
	})
	return t.Conn.Write(b)
}

// framer finds the frames in a stream. A frame is a length and that many bytes; the framer passes the first
// four of these bytes to a function.
type framer struct {
	head [8]byte
	have int
	skip int
}

func (f *framer) feed(b []byte, frame func(head []byte)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have == len(f.head) {
			frame(f.head[4:])
			f.have, f.skip = 0, max(0, int(binary.BigEndian.Uint32(f.head[:4]))-4)
		}
	}
}
