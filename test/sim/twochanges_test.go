package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

var changesShare = flag.Int("changes.share", 0, "run every Nth pair of changes of members at once; 1: all")

// jobs are the jobs that an operator does with one server: the server that joins (4), a voter that follows
// (V), or the leader (L).
var jobs = []string{"add 4", "remove 4", "replace 4", "move 4", "remove V", "replace V", "move V", "remove L"}

// changeSteps are the steps of three servers before two operators change the members.
var changeSteps = []string{"observe", "lead", "restart"}

// In TestR21EveryPairOfChangesAtOnce two operators do a job each. The second operator starts a little after
// the first, and the disks take a few milliseconds. At the end the members and votes must be as if the
// changes had been made one after the other, with the results that the operators were told. The cluster
// serves.
func TestR21EveryPairOfChangesAtOnce(t *testing.T) {
	share := 13
	if testing.Short() {
		share = 97 * rarer
	}
	if *changesShare > 0 {
		share = *changesShare
	}
	delays := []int{0, 1, 2, 4, 8, 30} // ms
	cases, ran := 0, 0
	for step := range len(changeSteps) + 1 {
		for _, one := range withoutMoves(jobs) {
			for _, other := range withoutMoves(jobs) {
				for _, delay := range delays {
					if cases++; (cases-1)%share == 0 && !t.Failed() {
						twoAtOnce(t, changeSteps[:step], one, other, time.Duration(delay)*time.Millisecond)
						ran++
					}
				}
			}
		}
	}
	t.Logf("%d of %d cases ran", ran, cases)
}

// operators change the members of a cluster at once.
type operators struct {
	*sequence
	baton sync.Mutex // held while an operator works; not while it waits for an answer
}

// told is a change that an operator asked for, with its result: made, perhaps made, or refused.
type told struct {
	change.Change
	made, perhaps bool
}

func twoAtOnce(t *testing.T, before []string, one, other string, delay time.Duration) {
	name := fmt.Sprintf("after %v: %s, and %s after %v", before, one, other, delay)
	synctest.Test(t, func(t *testing.T) {
		c := &operators{sequence: newSequence(t, 3, 3)}
		c.strict = true
		c.form()
		defer c.end()
		err := c.settle()
		for _, s := range before {
			if err == nil {
				err = c.step(s)
			}
		}
		c.write()
		for _, d := range c.disk {
			d.Slow(5 * time.Millisecond)
		}
		lead, was := c.leads(), c.votes()
		var histories [2][]told
		var wg sync.WaitGroup
		for i, job := range []string{one, other} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * delay)
				c.baton.Lock()
				defer c.baton.Unlock()
				id := map[byte]uint32{'4': 4, 'L': lead, 'V': lead%3 + 1}[job[len(job)-1]]
				histories[i] = c.job(job[:len(job)-2], id)
			})
		}
		wg.Wait()
		if err == nil {
			err = c.tidy()
		}
		if now := c.votes(); err == nil && !explains(was, histories[0], histories[1], now) {
			err = fmt.Errorf("R21: members were %v and are %v; the operators were told %+v and %+v", was, now,
				histories[0], histories[1])
		}
		if c.write(); err == nil {
			err = c.last()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// job() does one job, and gives up when the leader refuses it for good. The caller holds `baton`.
func (c *operators) job(what string, id uint32) (list []told) {
	ask := func(m change.Change) bool {
		m.ID = id
		for end := time.Now().Add(sequencePatience); time.Now().Before(end); {
			n := c.node(c.leads())
			c.baton.Unlock()
			err := status.Errorf(status.NotReady, "no server leads")
			if n != nil {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				err = n.ChangeMember(ctx, m)
				cancel()
			}
			if err != nil {
				time.Sleep(50 * time.Millisecond)
			}
			c.baton.Lock()
			code := status.Of(err)
			refused := code == status.IsMember || code == status.NotMember
			list = append(list, told{m, err == nil, err != nil && !refused && code != status.NotReady})
			if err == nil || refused {
				return err == nil || code == status.IsMember
			}
		}
		return false
	}
	add := func() bool {
		if c.addrOf(id) == "" {
			c.setAddr(id, peerAddrOf(id))
		}
		if !ask(change.Change{Op: "add", Addr: c.addrOf(id)}) {
			return false
		}
		if !c.lasts(id) {
			c.crash(id)
			c.fresh(id)
			c.disk[id].Slow(5 * time.Millisecond)
			c.launch(id)
		}
		return ask(change.Change{Op: "promote"})
	}
	switch what {
	case "add":
		add()
	case "remove":
		if ask(change.Change{Op: "remove"}) {
			c.crash(id)
		}
	case "replace":
		if ask(change.Change{Op: "remove"}) {
			c.crash(id)
			add()
		}
	case "move":
		if c.disk[id] == nil {
			return nil // the server never ran
		}
		c.crash(id)
		c.lives++
		c.setAddr(id, fmt.Sprintf("%s:%d", hostName(id), 3000+c.lives))
		c.launch(id)
		ask(change.Change{Op: "move", Addr: c.addrOf(id)})
	}
	return list
}

// lasts() reports whether a server's process runs or is starting.
func (c *operators) lasts(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.life[id]
	return l != nil && l.ctx.Err() == nil && !l.ended.Load()
}

func (c *operators) addrOf(id uint32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[id]
}

func (c *operators) setAddr(id uint32, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers[id] = addr
}

// votes() returns for each member whether it has a vote, according to the leader.
func (c *operators) votes() map[uint32]bool {
	list := map[uint32]bool{}
	if n := c.node(c.leads()); n != nil {
		for _, m := range n.Status().Members {
			list[m.ID] = m.Voter
		}
	}
	return list
}

// tidy() starts the members at the addresses that the leader has for them, and ends the servers that are not
// members.
func (c *operators) tidy() error {
	time.Sleep(10 * time.Second)
	n := c.node(c.leads())
	if n == nil {
		return errors.New("no server leads")
	}
	c.mu.Lock()
	was := maps.Clone(c.peers)
	clear(c.peers)
	for _, m := range n.Status().Members {
		c.peers[m.ID], c.watch[m.ID] = m.Peer, !m.Voter
	}
	c.mu.Unlock()
	for id, addr := range was {
		if !c.lasts(id) || c.peers[id] != addr {
			if c.crash(id); c.peers[id] != "" {
				c.launch(id)
			}
		}
	}
	return c.settle()
}

// explains() reports whether the changes of two operators, in some order, lead from the old members (`was`)
// to the present members (`now`).
func explains(was map[uint32]bool, one, other []told, now map[uint32]bool) bool {
	if len(one) == 0 && len(other) == 0 {
		return maps.Equal(was, now)
	}
	for i, list := range [][]told{one, other} {
		if len(list) == 0 {
			continue
		}
		rest := [2][]told{one, other}
		rest[i] = list[1:]
		first := list[0]
		if !first.made && explains(was, rest[0], rest[1], now) {
			return true
		}
		if next, ok := changed(was, first.Op, first.ID); ok && (first.made || first.perhaps) &&
			explains(next, rest[0], rest[1], now) {
			return true
		}
	}
	return false
}

// changed() returns the members after one change.
func changed(was map[uint32]bool, op change.Op, id uint32) (now map[uint32]bool, ok bool) {
	now = maps.Clone(was)
	_, member := was[id]
	switch op {
	case "add":
		now[id] = false
		return now, !member
	case "promote":
		now[id] = true
	case "remove":
		delete(now, id)
	}
	return now, member
}
