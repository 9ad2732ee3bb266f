package abuse

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client"
)

// innocents are two clients on different servers that pass a lock to each other. Their address
// is not the attacker's.
type innocents struct {
	clients [2]*client.Client
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	locks   int
	slowest time.Duration
	trouble error // the first error
}

func startInnocents(addrs [2]string) (*innocents, error) {
	p := &innocents{}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	for i, addr := range addrs {
		c, err := client.Dial(ctx, addr, client.WithSessionTimeout(10*time.Second))
		if err != nil {
			p.cancel()
			return nil, err
		}
		p.clients[i] = c
		p.wg.Go(func() { p.run(ctx, c) })
	}
	return p, nil
}

// run() takes and releases the lock again and again.
func (p *innocents) run(ctx context.Context, c *client.Client) {
	m := c.Mutex("/innocent/lock")
	for ctx.Err() == nil {
		begin := time.Now()
		lease, err := m.Lock(ctx)
		took := time.Since(begin)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		p.note(took, err)
	}
}

func (p *innocents) note(took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.trouble == nil {
			p.trouble = fmt.Errorf("after %v: %w", took, err)
		}
		return
	}
	p.locks++
	p.slowest = max(p.slowest, took)
}

// take() returns the counts since the last call of take().
func (p *innocents) take() (locks int, slowest time.Duration, trouble error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	locks, slowest, trouble = p.locks, p.slowest, p.trouble
	p.locks, p.slowest, p.trouble = 0, 0, nil
	return locks, slowest, trouble
}

// calm() waits until the servers have finished the work of the last attack, and the lock is passed on again.
// Then it resets the counts.
func (p *innocents) calm(most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		p.take()
		time.Sleep(200 * time.Millisecond)
		if locks, slowest, _ := p.take(); locks > 10 && slowest < 100*time.Millisecond {
			break
		}
	}
	p.take()
}

func (p *innocents) stop() {
	p.cancel()
	p.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, c := range p.clients {
		c.Close(ctx)
	}
}
