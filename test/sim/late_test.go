package sim

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/change"
)

var lateShare = flag.Int("late.share", 0, "run every Nth pair of late messages; 1: all")

// TestF5R22EveryPairOfLateMessages runs a script of a snapshot, changes of members, a hand-over, a death and
// writes. In each run, one message or two that servers send each other are delayed until a later step is
// complete. The runs cover every message and every pair, each later step, and both orders of a pair. No
// server's state goes back, no message of an older term deposes a leader, no server ends, and no answered
// write is lost.
func TestF5R22EveryPairOfLateMessages(t *testing.T) {
	for _, size := range []int{3, 5} {
		alone, pairs := map[int]int{3: 1, 5: 7}[size], map[int]int{3: 421, 5: 3613}[size] // run each nth case
		if testing.Short() {
			alone, pairs = 31*rarer*alone, 5*rarer*pairs
		}
		if *lateShare > 0 {
			alone, pairs = 1, *lateShare
		}
		all := firsts(runLate(t, size, lateCase{after: len(lateSteps)}))
		var ones, twos []lateCase
		for i := range all {
			for after := all[i].step; after < len(lateSteps); after++ {
				ones = append(ones, lateCase{hold: []message{all[i].message}, after: after})
			}
			for j := range all[:i] {
				for after := all[i].step; after < len(lateSteps); after++ {
					two := lateCase{hold: []message{all[j].message, all[i].message}, after: after}
					twos = append(twos, two)
					two.reverse = true
					twos = append(twos, two)
				}
			}
		}
		ran := 0
		for _, s := range []struct {
			list []lateCase
			nth  int
		}{{ones, alone}, {twos, pairs}} {
			for i := 0; i < len(s.list) && !t.Failed(); i += s.nth {
				runLate(t, size, s.list[i])
				ran++
			}
		}
		t.Logf("%d members: %d messages alone in %d cases, two of them in %d; %d of these ran", size, len(all),
			len(ones), len(twos), ran)
	}
}

// message identifies a message between two servers: the nth message of a kind.
type message struct {
	kind     string
	answer   bool
	from, to string
	n        int
}

func (m message) String() string {
	what := m.kind
	if m.answer {
		what = "answer to " + what
	}
	return fmt.Sprintf("%s %d from %s to %s", what, m.n, m.from, m.to)
}

// sent is a message that a server sent in a step. The test may delay it.
type sent struct {
	message
	step int
	pipe *pipe
	term uint64 // the term in a request of raft; 0: the message is something else
}

// firsts() keeps, for each step, the first message of each kind that one server sends another.
func firsts(list []sent) (kept []sent) {
	for _, s := range list {
		if !slices.ContainsFunc(kept, func(k sent) bool {
			k.n = s.n
			return k.step == s.step && k.message == s.message
		}) {
			kept = append(kept, s)
		}
	}
	return kept
}

// lateCase says which messages are late. They arrive after a step, in reverse order if `reverse` is set.
type lateCase struct {
	hold    []message
	after   int
	reverse bool
}

// lateRun is a cluster in which messages are late.
type lateRun struct {
	*sequence
	lateCase
	at      int
	asked   map[*connID]string // the last request on each connection
	count   map[message]int    // how often each kind of message was sent; n is 0 in the keys
	seen    []sent
	waiting []sent // messages still on the wire
}

// lateSteps are steps that together make servers send every kind of message.
var lateSteps = []string{"lag", "observe", "promote", "lead", "kill", "restart", "remove"}

// runLate runs the script, and returns the messages that it sends.
func runLate(t *testing.T, size int, now lateCase) (seen []sent) {
	synctest.Test(t, func(t *testing.T) {
		c := &lateRun{sequence: newSequence(t, size, uint64(size)), lateCase: now, asked: map[*connID]string{},
			count: map[message]int{}}
		c.trailing, c.strict = 8, true
		c.form()
		defer c.end()
		stop := make(chan struct{})
		defer close(stop)
		err := c.settle()
		hold := c.held
		c.net.held.Store(&hold)
		go c.watchZxids(stop)
		for i, s := range lateSteps {
			c.mu.Lock()
			c.at = i
			c.mu.Unlock()
			if err == nil {
				err = c.do(s)
			}
			c.write()
			if i == c.after && err == nil {
				err = c.deliver()
			}
			if err != nil {
				t.Errorf("%d members, %+v: %s: %v", size, now, s, err)
				return
			}
		}
		c.net.held.Store(nil)
		seen = c.seen
		if err = c.deliver(); err == nil { // the messages that were held back after the step `after`
			err = c.last()
		}
		if err != nil {
			t.Errorf("%d members, %+v: %v", size, now, err)
		}
	})
	return seen
}

// held() implements Network.held.
func (c *lateRun) held(p *pipe, b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, term, is := requestOf(byte(p.conn.first.Load()), b)
	if p.answers {
		kind, term = c.asked[p.conn], 0
	} else if is {
		c.asked[p.conn] = kind
	}
	if kind == "" {
		return false
	}
	m := message{kind: kind, answer: p.answers, from: p.from, to: p.to}
	c.count[m]++
	m.n = c.count[m]
	s := sent{message: m, step: c.at, pipe: p, term: term}
	c.seen = append(c.seen, s)
	if !slices.Contains(c.hold, m) {
		return false
	}
	c.waiting = append(c.waiting, s)
	return true
}

// requestOf returns the kind of the request that a server sends, or begins to send, on a connection between
// rafts. It also reports whether the bytes are a request. The kind of a heartbeat is empty.
func requestOf(first byte, b []byte) (kind string, term uint64, is bool) {
	const head = 4 + 4 + 1 // size of a frame's length, checksum and kind
	switch {
	case first == 'A' && bytes.Contains(b, []byte(`"member":{`)):
		return "change of members", 0, true
	case first != 'R' || b[0] == 'R' || len(b) < head || int(binary.BigEndian.Uint32(b))+4 != len(b):
		return "", 0, false // a greeting, or a piece of a snapshot
	}
	kind = [...]string{"", "entries", "vote", "prevote", "request to stand", "snapshot"}[b[head-1]]
	d := jute.NewDecoder(b[head:])
	d.Long() // skip the header
	d.Buffer()
	d.Buffer()
	if kind == "snapshot" {
		d.Long()
	}
	if term = uint64(d.Long()); kind == "entries" {
		d.Long()
		d.Long()
		d.Long()
		if d.Buffer(); d.Int() == 0 {
			kind = ""
		}
	}
	return kind, term, true
}

// watchZxids checks that the state of no server goes back.
func (c *lateRun) watchZxids(stop chan struct{}) {
	newest := map[*raftfsm.Node]int64{}
	for {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		c.mu.Lock()
		for id, n := range c.run {
			if n == nil {
				continue
			}
			now := n.Zxid()
			if now < newest[n] {
				c.t.Errorf("G4: %+v: server %d goes back from zxid %#x to %#x", c.lateCase, id, newest[n], now)
			}
			newest[n] = now
		}
		c.mu.Unlock()
	}
}

// deliver() lets the late messages arrive. Messages of older terms must not depose the leader.
func (c *lateRun) deliver() error {
	c.mu.Lock()
	list := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	if c.reverse {
		slices.Reverse(list)
	}
	for _, s := range list {
		lead := c.leads()
		if lead == 0 {
			if err := c.settle(); err != nil {
				return err
			}
			lead = c.leads()
		}
		term := c.node(lead).Status().Term
		s.pipe.letGo()
		time.Sleep(200 * time.Millisecond)
		if s.term == 0 || s.term >= term {
			continue
		}
		if now := c.node(lead).Status(); now.Role != "leader" || now.Term != term {
			return fmt.Errorf("G21: %v, of term %d, deposes server %d, the leader of term %d", s, s.term, lead, term)
		}
	}
	return c.settle()
}

// do() makes one step of the script.
func (c *lateRun) do(what string) error {
	lead := c.leads()
	others := slices.DeleteFunc(c.running(), func(id uint32) bool { return id == lead || c.watch[id] })
	far := uint32(0) // the server that joins
	for id := range c.peers {
		far = max(far, id)
	}
	switch what {
	case "lag": // the leader sends two snapshots to a server that lacks entries
		away := others[len(others)-1]
		for id := range c.peers {
			c.net.Cut(hostName(id), hostName(away))
			c.net.Cut(hostName(away), hostName(id))
		}
		if err := c.grow(lead); err != nil {
			return err
		}
		c.net.Heal()
		time.Sleep(time.Second)
		if err := c.grow(lead); err != nil {
			return err
		}
	case "observe":
		id := far + 1
		c.peers[id], c.watch[id] = peerAddrOf(id), true
		c.fresh(id)
		if err := c.changeBy(others[0], change.Change{Op: "add", ID: id, Addr: c.peers[id]}); err != nil {
			return err
		}
		c.launch(id)
	case "promote":
		return c.changeBy(others[0], change.Change{Op: "promote", ID: far})
	case "remove":
		if err := c.changeBy(others[0], change.Change{Op: "remove", ID: far}); err != nil {
			return err
		}
		time.Sleep(time.Second)
		c.crash(far)
		delete(c.peers, far)
	case "kill":
		c.crash(lead)
		c.dead[lead] = true
	default:
		return c.step(what)
	}
	return c.settle()
}

// grow() writes more entries than the servers keep in the log after the next snapshot.
func (c *lateRun) grow(lead uint32) error {
	for range c.trailing + 2 {
		c.session(lead, time.Hour)
	}
	return c.node(lead).Snapshot()
}
