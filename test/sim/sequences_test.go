package sim

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	oldrand "math/rand"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

var (
	sequenceShare = flag.Int("sequences.share", 0, "run every Nth sequence of six steps; 1: all")
	oneSequence   = flag.String("sequences.one", "", "run this one, such as 3:kill,wipe,replace,lead,restart,restart")
)

// steps are what operators and faults do to one member.
var steps = []string{"kill", "wipe", "replace", "lead", "restart", "move", "add", "remove"}

const sequenceLength = 6

// TestR6R21MembersSurviveEverySequence runs sequences of six steps on three and on five members. A random
// number that follows from the sequence chooses each step's member. At the end the test restarts all members
// at once. Before and after that restart all members must be ready, and hold every answered write.
func TestR6R21MembersSurviveEverySequence(t *testing.T) {
	if *oneSequence != "" {
		size, list, _ := strings.Cut(*oneSequence, ":")
		runSequence(t, int(size[0]-'0'), strings.Split(list, ","), nil)
		return
	}
	for _, size := range []int{3, 5} {
		all := sequences(size)
		share := map[int]int{3: 127, 5: 613}[size] // primes, so that the sequences that run end in different steps
		if testing.Short() {
			share *= 15 * rarer
		}
		if *sequenceShare > 0 {
			share = *sequenceShare
		}
		ran := 0
		for i := 0; i < len(all); i += share {
			runSequence(t, size, all[i], nil)
			ran++
		}
		t.Logf("%d members: %d of %d sequences ran; the other %d of 8^6 cannot happen", size, ran, len(all), 1<<18-len(all))
	}
}

// TestR6ReplacedMemberLeads is a sequence in which the leader is a member that was replaced after the last
// snapshot of another member. When the other member restarts, it does not know the leader's directory.
func TestR6ReplacedMemberLeads(t *testing.T) {
	runSequence(t, 3, []string{"kill", "wipe", "replace", "lead", "restart", "restart"}, nil)
	runSequence(t, 5, []string{"kill", "wipe", "replace", "lead", "restart", "restart"}, nil)
}

// TestG22MovedMemberIsFoundByAnUncommittedChange is a sequence in which the leader needs a moved member for
// the next change of members. The leader knows the member's new address, but has not written it to the log.
func TestG22MovedMemberIsFoundByAnUncommittedChange(t *testing.T) {
	runSequence(t, 3, []string{"kill", "restart", "move", "lead", "kill", "wipe"}, nil)
}

// sequences() lists the sequences in which every step is possible. That depends only on how many servers run,
// are dead, or have lost their directory.
func sequences(size int) (list [][]string) {
	type counts struct{ run, dead, wiped, in int }
	var walk func(c counts, done []string)
	walk = func(c counts, done []string) {
		if len(done) == sequenceLength {
			list = append(list, slices.Clone(done))
			return
		}
		quorum := c.in/2 + 1
		for _, s := range steps {
			n := c
			switch s {
			case "kill":
				n.run, n.dead = c.run-1, c.dead+1
				if n.run < quorum {
					continue
				}
			case "wipe":
				n.dead, n.wiped = c.dead-1, c.wiped+1
				if c.dead == 0 || c.in-n.wiped < quorum {
					continue
				}
			case "replace":
				n.wiped, n.run = c.wiped-1, c.run+1
				// After the member has left, a majority of the remaining members must run.
				if c.wiped == 0 || c.run < (c.in-1)/2+1 {
					continue
				}
			case "lead", "restart":
				if c.run < quorum+1 && s == "restart" && c.dead == 0 {
					continue // the step would only stop and start the whole cluster
				}
				if s == "restart" && c.dead > 0 {
					n.dead, n.run = c.dead-1, c.run+1
				}
			case "move":
				if c.run < quorum+1 {
					continue
				}
			case "add":
				n.in, n.run = c.in+1, c.run+1
				if c.in == size+1 || c.run < n.in/2+1 {
					continue
				}
			case "remove":
				n.in, n.run = c.in-1, c.run-1
				if c.in == 2 || n.run < n.in/2+1 {
					continue
				}
			}
			walk(n, append(done, s))
		}
	}
	walk(counts{run: size, in: size}, nil)
	return list
}

// sequence is a cluster that goes through the steps of one sequence.
type sequence struct {
	*nodes
	rng   *rand.Rand
	lives uint64
	dead  map[uint32]bool // stopped members that still have their directories
	wiped map[uint32]bool // stopped members without their directories
	watch map[uint32]bool // members that do not get a vote
	wrote []int64         // the sessions whose creation was answered
	life  map[uint32]*processLife

	trailing uint64 // log entries kept before a snapshot; 0: the default
	strict   bool   // only a removed server may end by itself
	over     bool   // servers do not start any more
}

// processLife is the state of one process, from its start to its end.
type processLife struct {
	ctx   context.Context
	kill  context.CancelFunc
	ended atomic.Bool // the process ended by itself
}

func runSequence(t *testing.T, size int, list []string, crash *crashPoint) {
	t.Helper()
	list = withoutMoves(list)
	name := fmt.Sprintf("%d:%s", size, strings.Join(list, ","))
	if crash != nil {
		name += fmt.Sprintf("; crash %+v", *crash)
	}
	synctest.Test(t, func(t *testing.T) {
		seed := uint64(size)
		for _, s := range list {
			seed = seed*8 + uint64(slices.Index(steps, s))
		}
		c := newSequence(t, size, seed)
		c.form()
		defer c.end()
		err := c.settle()
		c.write()
		for i, s := range list {
			if err == nil && crash != nil && crash.step == i && c.disk[crash.server] != nil {
				c.disk[crash.server].CrashAt(crash.nth, func() { c.powerLoss(crash) })
			}
			if err == nil {
				err = c.step(s)
			}
			if err == nil && crash == nil {
				err = c.refuses()
			}
			if err != nil {
				t.Errorf("%s: step %d: %v", name, i+1, err)
				return
			}
			c.write()
		}
		if err := c.last(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// newSequence makes a cluster, which form() starts.
func newSequence(t *testing.T, size int, seed uint64) *sequence {
	oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
	c := &sequence{rng: rand.New(rand.NewPCG(seed, 1)), dead: map[uint32]bool{}, wiped: map[uint32]bool{},
		watch: map[uint32]bool{}, life: map[uint32]*processLife{},
		nodes: &nodes{t: t, net: NewNetwork(rand.New(rand.NewPCG(seed, 3)), time.Millisecond), peers: map[uint32]string{},
			disk: map[uint32]*serverDisk{}, run: map[uint32]*raftfsm.Node{}}}
	for id := uint32(1); id <= uint32(size); id++ {
		c.peers[id] = peerAddrOf(id)
		c.fresh(id)
	}
	return c
}

// form() begins to start all servers.
func (c *sequence) form() {
	for id := range c.peers {
		c.launch(id)
	}
}

// fresh() gives a server an empty disk.
func (c *sequence) fresh(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives++
	c.disk[id] = newServerDisk(rand.New(rand.NewPCG(c.rng.Uint64(), c.lives)))
}

// launch() begins to start a server. After launch() has returned, crash() can end the process.
func (c *sequence) launch(id uint32) {
	if run := c.process(id); run != nil {
		go run()
	}
}

// begin() starts a server. It returns when the server has joined or its process has ended.
func (c *sequence) begin(id uint32) {
	if run := c.process(id); run != nil {
		run()
	}
}

// process() returns the function that a server's process runs. It returns nil if the server stays off.
func (c *sequence) process(id uint32) (run func()) {
	l := new(processLife)
	l.ctx, l.kill = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.life[id] = l
	peers, files := maps.Clone(c.peers), c.disk[id].Files()
	return func() { c.live(id, l, peers, files) }
}

// live() runs a process until the server has joined.
func (c *sequence) live(id uint32, l *processLife, peers map[uint32]string, files *disk.Files) {
	host := hostName(id)
	n, err := raftfsm.Start(l.ctx, raftfsm.Options{
		ID: id, Peers: peers, PeerInsecure: true, DataDir: dataDir, Files: files, Observer: quietObserver{},
		Listen: c.net.Listen, Logger: logger(id), TrailingLogs: c.trailing,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if l.ctx.Err() != nil {
				return nil, l.ctx.Err()
			}
			return c.net.Dialer(host)(ctx, addr)
		},
		Fatal: func(err error) {
			l.ended.Store(true)
			if c.strict && !strings.Contains(err.Error(), "was removed from the cluster") {
				c.t.Errorf("G26: server %d stopped: %v", id, err)
			}
		},
	})
	if err != nil {
		if l.ctx.Err() == nil {
			c.t.Errorf("start %d: %v", id, err)
		}
		return
	}
	c.mu.Lock()
	over := l.ctx.Err() != nil
	if !over {
		c.run[id] = n
	}
	c.mu.Unlock()
	if over {
		n.Abort()
	}
}

// crash() ends the process of a server, even while the server starts.
func (c *sequence) crash(id uint32) {
	c.mu.Lock()
	l, n := c.life[id], c.run[id]
	c.mu.Unlock()
	if l != nil {
		starts := n == nil && l.ctx.Err() == nil
		l.kill()
		if starts {
			c.net.Crash(hostName(id))
			c.disk[id].Crash()
		}
	}
	c.nodes.crash(id)
}

func (c *sequence) end() {
	c.mu.Lock()
	c.over = true // a server that loses its power after this stays off
	c.mu.Unlock()
	for id := range c.disk {
		c.crash(id)
	}
	time.Sleep(time.Minute)
}

// leads() returns the server that reports itself as the leader. It returns 0 if there is no such server.
func (c *nodes) leads() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.run {
		if n != nil && n.Status().Role == "leader" {
			return id
		}
	}
	return 0
}

// running() lists the members that run, in order.
func (c *sequence) running() (list []uint32) {
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		if !c.dead[id] && !c.wiped[id] {
			list = append(list, id)
		}
	}
	return list
}

func (c *sequence) pick(list []uint32) uint32 { return list[c.rng.IntN(len(list))] }

func (c *sequence) pickOf(set map[uint32]bool) uint32 { return c.pick(slices.Sorted(maps.Keys(set))) }

// step() makes one step, and waits until all running servers serve.
func (c *sequence) step(what string) error {
	switch what {
	case "kill":
		id := c.pick(c.running())
		c.crash(id)
		c.dead[id] = true
	case "wipe":
		id := c.pickOf(c.dead)
		c.fresh(id)
		delete(c.dead, id)
		c.wiped[id] = true
		c.launch(id) // the server waits with an empty directory, and answers other servers
	case "replace":
		id := c.pickOf(c.wiped)
		if err := c.change(change.Change{Op: "remove", ID: id}); err != nil {
			return err
		}
		delete(c.wiped, id)
		c.crash(id)
		c.fresh(id)
		return c.join(id)
	case "lead":
		lead, list := c.leads(), c.running()
		list = slices.DeleteFunc(list, func(id uint32) bool { return id == lead || c.watch[id] })
		return c.change(change.Change{Op: "lead", ID: c.pick(list)})
	case "restart":
		id := c.pick(c.running())
		if len(c.dead) > 0 {
			id = c.pickOf(c.dead)
			delete(c.dead, id)
		} else {
			c.crash(id)
		}
		c.launch(id)
	case "move":
		id := c.pick(c.running())
		c.crash(id)
		c.lives++
		c.peers[id] = fmt.Sprintf("%s:%d", hostName(id), 3000+c.lives)
		c.launch(id)
	case "add", "observe":
		id := uint32(1)
		for c.peers[id] != "" {
			id++
		}
		c.peers[id] = peerAddrOf(id)
		c.watch[id] = what == "observe"
		c.fresh(id)
		return c.join(id)
	case "remove":
		id := c.pick(c.running())
		if err := c.change(change.Change{Op: "remove", ID: id}); err != nil {
			return err
		}
		time.Sleep(time.Second)
		c.crash(id)
		delete(c.peers, id)
	}
	return c.settle()
}

// refuses() asks the leader to remove a running voter, if the other running voters would be no majority. The
// leader must refuse, because the cluster would stop.
func (c *sequence) refuses() error {
	voters := len(c.peers) - len(c.watch)
	list := slices.DeleteFunc(c.running(), func(id uint32) bool { return c.watch[id] })
	if len(list)-1 > (voters-1)/2 || voters < 2 {
		return nil
	}
	n := c.node(c.leads())
	if n == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	id := c.pick(list)
	err := n.ChangeMember(ctx, change.Change{Op: "remove", ID: id})
	switch code := status.Of(err); {
	case code == status.Unsafe || code.Passes():
		return c.settle()
	case err == nil:
		return fmt.Errorf("R21: server %d was removed, and of %d other voters %d run", id, voters-1, len(list)-1)
	}
	return err
}

// join() adds a server with an empty directory, and gives the server its vote.
func (c *sequence) join(id uint32) error {
	if err := c.change(change.Change{Op: "add", ID: id, Addr: c.peers[id]}); err != nil {
		return err
	}
	c.launch(id)
	if !c.watch[id] {
		if err := c.change(change.Change{Op: "promote", ID: id}); err != nil {
			return err
		}
	}
	return c.settle()
}

const sequencePatience = 60 * time.Second

// change() repeats a request for a change to the leader until the change is made.
func (c *sequence) change(m change.Change) error { return c.changeBy(0, m) }

// changeBy repeats a request for a change until the change is made. It asks the server with the id `by`, or
// the leader if `by` is 0.
func (c *sequence) changeBy(by uint32, m change.Change) (err error) {
	for end := time.Now().Add(sequencePatience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = errors.New("no server leads")
		if n := c.node(cmp.Or(by, c.leads())); n != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err = n.ChangeMember(ctx, m)
			cancel()
		}
		if code := status.Of(err); err == nil || code == status.IsMember || m.Op == "remove" && code == status.NotMember {
			return nil
		}
	}
	return fmt.Errorf("%s server %d: %w", m.Op, m.ID, err)
}

// settle() waits until all running servers serve.
func (c *sequence) settle() error {
	why := ""
	for end := time.Now().Add(sequencePatience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		why = ""
		for _, id := range c.running() {
			n := c.node(id)
			if n == nil {
				why = fmt.Sprintf("server %d has not joined", id)
			} else if ok, reason := n.Serving(); !ok {
				why = fmt.Sprintf("server %d: %s", id, reason)
			}
		}
		if why == "" && c.leads() != 0 {
			return nil
		}
	}
	return fmt.Errorf("not ready within %v: %s", sequencePatience, why)
}

// write() makes a session with a long timeout on a running server.
func (c *sequence) write() {
	id := c.pick(c.running())
	body := state.SessionBody{Timeout: 3600_000, Owner: id, Addr: "10.0.0.1"}
	n := c.node(id)
	if n == nil {
		return // the server has just lost its power
	}
	o, _, ok := ask(n, state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
	if ok && !o.Refused && c.node(id) == n { // otherwise the answer does not reach a client
		c.wrote = append(c.wrote, o.Session.ID)
	}
}

// last() starts the stopped members, and replaces the members without directories. Then it restarts all
// members at once, and compares their content.
func (c *sequence) last() error {
	for len(c.wiped) > 0 {
		if err := c.step("replace"); err != nil {
			return err
		}
	}
	for len(c.dead) > 0 {
		if err := c.step("restart"); err != nil {
			return err
		}
	}
	for _, id := range c.running() {
		c.crash(id)
	}
	for _, id := range c.running() {
		c.launch(id)
	}
	if err := c.settle(); err != nil {
		return fmt.Errorf("after a restart of all: %w", err)
	}
	c.write()
	time.Sleep(time.Second)
	digests := map[uint64]bool{}
	for _, id := range c.running() {
		c.node(id).View(func(s *state.State) {
			digests[s.Digest()] = true
			for _, w := range c.wrote {
				if _, ok := s.Sessions().Get(w); !ok {
					c.t.Errorf("G2: server %d lacks a write that was answered", id)
				}
			}
		})
	}
	if len(digests) != 1 || len(c.wrote) == 0 {
		return fmt.Errorf("G9: %d different states, %d writes", len(digests), len(c.wrote))
	}
	return nil
}
