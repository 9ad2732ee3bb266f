package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
)

// addresses keeps the addresses of the other servers. Three sources may disagree: the log, which records
// changes of the members; this server's --peers, which is as old as its command line; and the address that
// the other server reports, which is the newest. The address in the log counts until the server answers at
// another one. The leader then writes the new address into the log, for all servers.
//
// A server that answers at another address must prove that it is the member in the log. An id can pass to
// another data directory; if the former directory were asked for a vote, two servers could vote for one
// member. There are two proofs. Either the other server has seen the newest configuration that this server
// has. Or this server knows the incarnation that the other server had at some log entry, and the other
// server is a member in every later configuration. This server then calls the other server at the new
// address until a configuration, committed or not, omits the member or gives it another address.
type addresses struct {
	n    *Node
	news signal.Signal // sent when a server has reported another address

	mu      sync.Mutex
	said    map[uint32]string // the addresses that servers report of themselves
	moved   map[uint32]move
	refused map[uint32]string // by server: why it refused a call at an address that is not in the log
}

// A move records that a server answers at an address that differs from the one in the log.
type move struct {
	from, to string
	config   uint64 // log index of the configuration that has the former address
}

const (
	addressLook = time.Second
	addressAsk  = time.Second
)

func newAddresses(n *Node) *addresses {
	return &addresses{n: n, news: signal.New(), said: map[uint32]string{}, moved: map[uint32]move{},
		refused: map[uint32]string{}}
}

// of() returns the address of a server, empty if it is not known.
func (a *addresses) of(id uint32) string {
	if a.n.up.Load() {
		for _, s := range a.n.raft.Servers() {
			if peer.ParseID(s.ID) == id {
				return a.instead(id, string(s.Address))
			}
		}
	}
	return a.n.o.Peers[id]
}

// instead() returns the address at which to call a server. `addr` is its address in the log.
func (a *addresses) instead(id uint32, addr string) string {
	a.mu.Lock()
	m, ok := a.moved[id]
	a.mu.Unlock()
	if !ok || m.from != addr {
		return addr
	}
	if !a.n.disk.StaysMember(m.config, peer.ServerID(id), raft.ServerAddress(addr)) {
		// The log has changed this member since. Its address in the log counts until look() has checked the move
		// again.
		return addr
	}
	return m.to
}

// heard() stores the address that a member gives as its own.
func (a *addresses) heard(g *peer.Greeting) {
	if g.At == "" || g.From == a.n.id || !a.n.up.Load() || a.n.incarnationOf(g.From) != g.Incarnation {
		return
	}
	if a.say(g.From, g.At) && a.of(g.From) != g.At {
		a.news.Send()
	}
}

// say() stores the address that a server gives as its own, and reports whether the address is new.
func (a *addresses) say(id uint32, addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.said[id]
	a.said[id] = addr
	return was != addr
}

// watch() keeps the addresses of the other servers up to date until the Node closes.
func (a *addresses) watch() {
	tick := time.NewTicker(addressLook)
	defer tick.Stop()
	for {
		select {
		case <-a.n.ctx.Done():
			return
		case <-a.news:
		case <-tick.C:
		}
		a.look()
	}
}

// look() calls each server for which it finds different addresses. While there is no leader it calls all
// servers, so that they learn this server's address if that has changed.
func (a *addresses) look() {
	servers, config := a.n.raft.Configuration()
	leader, _ := a.n.raft.Known()
	var wg sync.WaitGroup
	for _, s := range servers {
		id, at := peer.ParseID(s.ID), string(s.Address)
		if id == a.n.id {
			continue
		}
		a.mu.Lock()
		said := a.said[id]
		a.mu.Unlock()
		var others []string // addresses to try; the most credible comes first
		for _, addr := range []string{said, at, a.n.o.Peers[id]} {
			if addr != "" && !slices.Contains(others, addr) {
				others = append(others, addr)
			}
		}
		if len(others) > 1 || leader == 0 {
			wg.Go(func() { a.find(id, at, config, others) })
		}
	}
	wg.Wait()
	if t := a.n.leader.Term(); t != nil {
		a.publish(t)
	}
}

// find() looks for a server at several addresses.
func (a *addresses) find(id uint32, at string, config uint64, places []string) {
	for _, addr := range places {
		ctx, cancel := context.WithTimeout(a.n.ctx, addressAsk)
		st, err := a.n.port.Ask(ctx, id, addr, peer.Question{})
		cancel()
		if addr != at && errors.Is(err, peer.ErrRefused) {
			a.refuses(id, addr, err)
		}
		if err != nil || addr != at && !a.isMember(id, &st, config) {
			continue
		}
		switch newer := st.Up && st.Config > config && len(st.Members) > 0; {
		case newer && st.Members[a.n.id] == "":
			a.n.removed.Store(st.Config)
		case newer:
			a.n.removed.Store(0)
		}
		if own := st.Peers[id]; own != "" && a.isMember(id, &st, config) {
			a.say(id, own)
		}
		a.found(id, move{from: at, to: addr, config: config})
		return
	}
}

// refuses() logs, once for each reason, that the server at an address in --peers refuses to talk to this
// server. The data directory of that server, or this server's --peers, may belong to another cluster.
func (a *addresses) refuses(id uint32, addr string, err error) {
	text := err.Error()
	a.mu.Lock()
	was := a.refused[id]
	a.refused[id] = text
	a.mu.Unlock()
	if was != text {
		a.n.log.Warn("a server in --peers refuses this server", "peer", id, "addr", addr, "err", err)
	}
}

// isMember reports whether the server that answered is the configuration's member, and not an earlier server
// with the same id.
func (a *addresses) isMember(id uint32, st *peer.Status, config uint64) bool {
	if st.ID != id || st.Cluster != a.n.disk.Identity().Cluster {
		return false
	}
	if st.Config >= config {
		return true
	}
	known, asOf := a.n.knownAs(id)
	return known == st.Incarnation && a.n.disk.StaysMember(asOf, peer.ServerID(id), "")
}

func (a *addresses) found(id uint32, m move) {
	a.mu.Lock()
	was := a.moved[id]
	if m.from == m.to {
		delete(a.moved, id)
	} else {
		a.moved[id] = m
	}
	a.mu.Unlock()
	if m.from != m.to && was.to != m.to {
		a.n.log.Info("a server answers at an address that is not in the log", "peer", id, "addr", m.to, "was",
			m.from)
	}
}

// publish() writes the new address of a member into the log, if the member gives that address as its own and
// other members reach it there. One call writes one address; the next calls write the others.
func (a *addresses) publish(t *leading.Term) {
	n := a.n
	servers, config := n.raft.Configuration()
	for _, s := range servers {
		id := peer.ParseID(s.ID)
		to := a.instead(id, string(s.Address))
		a.mu.Lock()
		own := a.said[id]
		a.mu.Unlock()
		if id == n.id {
			own = string(n.o.list().Self())
			to = own
		}
		if to != own || to == string(s.Address) ||
			id == n.id && a.reached(n.ctx, servers, peer.Place{ID: id, Addr: to}) != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, peer.AnswerTime)
		err := consensus.Await(ctx, n.raft.Move(&s, to, config))
		cancel()
		if err != nil {
			n.log.Warn("the new address of a member is not in the log yet", "peer", id, "addr", to, "err", err)
		} else {
			t.PublishMembers()
			n.log.Info("members changed", "op", "address", "peer", id, "addr", to, "was", s.Address)
		}
		return
	}
}

// reached() asks the other members whether they reach a server at an address. It returns an error if a member
// does not reach it, or no member answers.
func (a *addresses) reached(ctx context.Context, servers []raft.Server, place peer.Place) error {
	ctx, cancel := context.WithTimeout(ctx, 2*addressAsk)
	defer cancel()
	var others []peer.Place
	for _, s := range servers {
		if id := peer.ParseID(s.ID); id != a.n.id && id != place.ID {
			others = append(others, peer.Place{ID: id, Addr: a.instead(id, string(s.Address))})
		}
	}
	told := 0
	for w := range a.n.port.AskAll(ctx, others, peer.Question{Reach: &place}) {
		switch {
		case w.Status.Release == "": // this member is down, so it need not reach the server
		case w.Err != nil:
			return fmt.Errorf("server %d does not reach server %d at %s, as every member must: %w",
				w.ID, place.ID, place.Addr, w.Err)
		default:
			told++
		}
	}
	if told == 0 && len(others) > 0 {
		return errUnreached
	}
	return nil
}

// errUnreached is returned when no other member answers.
var errUnreached = errors.New("no other member answers")

// Standing asks the server at an address for its status. `there` reports whether a server of this cluster, or
// one without a cluster, answers. `follows` reports whether that server leads or follows the leader.
func (n *Node) Standing(ctx context.Context, id uint32, addr string) (there, follows bool) {
	if id == n.id {
		serves, _ := n.Serving()
		return true, serves
	}
	st, err := n.port.Ask(ctx, id, addr, peer.Question{})
	if err != nil || st.ID != id {
		return false, false
	}
	ours := st.Cluster == n.disk.Identity().Cluster
	return ours || st.Cluster == "", ours && st.Up && st.Leader != 0 &&
		(st.Leader == id || st.Linked == st.Leader)
}

// askLeader sends a question to the leader that this server's raft knows. It is for servers that do not
// lead.
func (n *Node) askLeader(ctx context.Context, q peer.Question) (peer.Status, error) {
	id, at := n.raft.Known()
	switch {
	case n.port == nil:
		return peer.Status{}, errAlone
	case id == 0:
		return peer.Status{}, n.serving.NoLeader()
	case id == n.id:
		// Raft says that this server leads, but its term has not begun yet or is over.
		return peer.Status{}, leading.ErrNotLeading
	}
	st, err := n.askAt(ctx, id, at, q)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// The leader is gone, and raft has not noticed yet. No server has received the question.
		return peer.Status{}, n.serving.NoLeader()
	}
	return st, err
}

// askAt asks the leader at the addresses that leaderAddrs returns. It goes on to the next address only if a
// connection is refused. It returns ECONNREFUSED if all are refused.
func (n *Node) askAt(ctx context.Context, id uint32, says string,
	q peer.Question) (st peer.Status, err error) {
	for _, addr := range n.leaderAddrs(id, says) {
		st, err = n.port.Ask(ctx, id, addr, q)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return st, err
}

// leaderAddrs returns the possible addresses of the leader, the likeliest first: its address in the list of
// members, and the address that the leader gives as its own, which raft passes on. A server that does not
// know the members yet returns only the second address.
func (n *Node) leaderAddrs(id uint32, says string) []string {
	known := n.addresses.of(id)
	if known == "" || known == says {
		return []string{says}
	}
	return []string{known, says}
}
