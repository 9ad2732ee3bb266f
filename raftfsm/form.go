package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// peerStatus is what a server says of itself to another.
type peerStatus struct {
	ID      uint32            `json:"id"`
	Cluster string            `json:"cluster"`
	Birth   string            `json:"birth"`
	Births  map[uint32]string `json:"births"`  // of all servers it knows; empty: a new one is expected
	Peers   map[uint32]string `json:"peers"`   // its --peers
	Formed  map[uint32]string `json:"formed"`  // the --peers with which its cluster was formed
	Members map[uint32]string `json:"members"` // addresses in its raft configuration
	Seen    uint64            `json:"seen"`    // highest term the asker's birth has shown it
	Leader  uint32            `json:"leader"`
	Up      bool              `json:"up"` // its raft runs

	Silent int64 `json:"silent"` // ms since it heard of a leader

	LastTerm  uint64 `json:"last_term"` // of its log
	LastIndex uint64 `json:"last_index"`
}

// formation makes servers into a cluster.
type formation struct {
	Cluster string            `json:"cluster"`
	Births  map[uint32]string `json:"births"`
	Peers   map[uint32]string `json:"peers"`
}

// question and answer pass between servers outside raft.
type question struct {
	Form   *formation    `json:"form,omitempty"`
	Member *MemberChange `json:"member,omitempty"`
}

type reply struct {
	Err    string     `json:"err,omitempty"`
	Status peerStatus `json:"status"`
}

// ask puts one question to a server.
func (n *Node) ask(ctx context.Context, id uint32, addr string, q question) (peerStatus, error) {
	c, err := n.call(ctx, peerAsk, id, addr)
	if err != nil {
		return peerStatus{}, err
	}
	defer c.Close()
	if d, ok := ctx.Deadline(); ok {
		c.SetDeadline(d)
	}
	var r reply
	if err := writeJSON(c, &q); err != nil {
		return peerStatus{}, err
	}
	if err := readJSON(c, &r); err != nil {
		return peerStatus{}, err
	}
	if r.Err != "" {
		return r.Status, errors.New(r.Err)
	}
	return r.Status, nil
}

// answer answers one question.
func (n *Node) answer(c net.Conn, asker *greeting) {
	var q question
	if err := readJSON(c, &q); err != nil {
		return
	}
	var err error
	switch {
	case q.Form != nil:
		err = n.accept(q.Form)
	case q.Member != nil:
		c.SetDeadline(time.Now().Add(memberTimeout))
		ctx, cancel := context.WithTimeout(n.ctx, memberTimeout)
		defer cancel()
		err = n.changeMember(ctx, *q.Member, false)
	}
	r := reply{Status: n.status()}
	r.Status.Seen = n.port.seenTerm(asker.Birth)
	if err != nil {
		r.Err = err.Error()
	}
	if err := writeJSON(c, &r); err != nil {
		n.log.Debug("answer to a peer", "err", err)
	}
}

func (n *Node) status() peerStatus {
	id := n.whoAmI()
	st := peerStatus{ID: n.id, Cluster: id.Cluster, Birth: id.Birth, Births: maps.Clone(id.Births),
		Peers: n.o.Peers, Formed: id.Peers, Members: map[uint32]string{}}
	if st.Up = n.up.Load(); !st.Up {
		return st
	}
	if st.Births == nil {
		st.Births = map[uint32]string{}
	}
	n.View(func(s *State) {
		for _, m := range s.members {
			st.Births[m.ID] = m.BirthID
		}
	})
	for _, s := range n.servers() {
		st.Members[parseID(s.ID)] = string(s.Address)
	}
	_, leader := n.raft.LeaderWithID()
	st.Leader = parseID(leader)
	st.Silent = n.silence().Milliseconds()
	st.LastTerm, st.LastIndex = n.lastEntry()
	return st
}

// lastEntry is the end of the log, as raft shows it to voters.
func (n *Node) lastEntry() (term, index uint64) {
	stats := n.raft.Stats()
	number := func(name string) uint64 {
		v, _ := strconv.ParseUint(stats[name], 10, 64)
		return v
	}
	term, index = number("last_log_term"), number("last_log_index")
	if snap := number("last_snapshot_index"); snap > index {
		return number("last_snapshot_term"), snap
	}
	return term, index
}

// admit decides whether a caller may talk to this server.
func (n *Node) admit(kind byte, g *greeting) error {
	id := n.whoAmI()
	switch {
	case !g.understands():
		return fmt.Errorf("server %d runs a release of zlockd that this server %d cannot work with (versions %d to %d between servers there, %d to %d here); upgrade one server after the other, through releases that know both",
			g.From, n.id, g.Oldest, g.Version, peerOldest, peerVersion)
	case g.To != n.id && g.To != 0:
		return fmt.Errorf("this is server %d, not %d; check the --peers lists", n.id, g.To)
	case g.From == n.id && g.Birth != id.Birth:
		return fmt.Errorf("two servers run with --id %d", n.id)
	case g.Cluster != "" && id.Cluster != "" && g.Cluster != id.Cluster:
		return fmt.Errorf("this server belongs to cluster %s, the caller to %s; check --data-dir and --peers of both", id.Cluster, g.Cluster)
	case kind == peerAsk:
		return nil
	case g.Cluster == "" || id.Cluster == "" || !n.up.Load():
		return errors.New("the cluster is not formed yet")
	}
	birth := id.Births[g.From]
	n.View(func(s *State) {
		if m, ok := s.members[g.From]; ok {
			birth = m.BirthID
		}
	})
	if birth != "" && birth != g.Birth {
		return fmt.Errorf("server %d has lost its data directory; remove it from the cluster and add it again", g.From)
	}
	return nil
}

// accept takes part in forming a cluster.
func (n *Node) accept(f *formation) error {
	n.formMu.Lock()
	defer n.formMu.Unlock()
	id := n.whoAmI()
	switch {
	case id.Cluster == f.Cluster:
		return nil
	case id.Cluster != "":
		return fmt.Errorf("server %d already belongs to cluster %s", n.id, id.Cluster)
	case f.Births[n.id] != id.Birth:
		return fmt.Errorf("server %d was meant to be another", n.id)
	case !maps.Equal(f.Peers, n.o.Peers):
		return peersDiffer(n.id, n.o.Peers, f.Peers)
	}
	id.Cluster, id.Births, id.Peers = f.Cluster, f.Births, f.Peers
	if err := n.saveIdentity(id); err != nil {
		return err
	}
	close(n.formed)
	return nil
}

// join finds out which cluster this server belongs to: the one on its disk,
// one that expects it, or a new one, which forms only when every listed
// server says that it is empty. It returns the configuration to begin with,
// if there is one.
func (n *Node) join(ctx context.Context) (*raft.Configuration, error) {
	if len(n.o.Peers) <= 1 {
		return n.joinAlone()
	}
	if n.whoAmI().Cluster != "" {
		return n.peersConfig(), n.checkTerm(ctx)
	}
	said := ""
	say := func(text string) { // once, and again when it changes
		if text != said {
			said = text
			n.log.Info(text)
		}
	}
	for {
		done, err := n.tryJoin(ctx, say)
		if err != nil {
			return nil, err
		}
		if done {
			return n.peersConfig(), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("did not join a cluster: %s: %w", said, ctx.Err())
		case <-n.formed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n *Node) joinAlone() (*raft.Configuration, error) {
	id := n.whoAmI()
	if len(id.Births) > 1 && len(n.o.Peers) == 0 {
		return nil, fmt.Errorf("the data directory belongs to server %d of a cluster: give --peers %s", n.id, listPeers(id.Peers))
	}
	if id.Cluster == "" {
		id.Cluster = randomID(n.o.Rand)
		id.Births = map[uint32]string{n.id: id.Birth}
		if err := n.saveIdentity(id); err != nil {
			return nil, err
		}
	}
	return &raft.Configuration{Servers: []raft.Server{{ID: serverID(n.id), Address: n.selfAddr()}}}, nil
}

// peersConfig is the configuration a new cluster begins with: the same at
// every server, so that it does not matter who begins. A server that was added
// later begins without one and is told by the leader.
func (n *Node) peersConfig() *raft.Configuration {
	id := n.whoAmI()
	peers := id.Peers
	if peers == nil { // formed by a version that did not keep them
		peers = n.o.Peers
	}
	c := new(raft.Configuration)
	for _, p := range slices.Sorted(maps.Keys(peers)) {
		if id.Births[p] == "" {
			return nil
		}
		c.Servers = append(c.Servers, raft.Server{ID: serverID(p), Address: raft.ServerAddress(peers[p])})
	}
	return c
}

// tryJoin asks all peers once. All must have the same --peers before anybody
// forms a cluster: from lists that differ two majorities could be counted.
func (n *Node) tryJoin(ctx context.Context, say func(string)) (bool, error) {
	if n.whoAmI().Cluster != "" { // accepted a formation meanwhile
		return true, nil
	}
	births := map[uint32]string{n.id: n.whoAmI().Birth}
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(n.o.Peers)) {
		if id == n.id {
			continue
		}
		askCtx, cancel := context.WithTimeout(ctx, time.Second)
		st, err := n.ask(askCtx, id, n.o.Peers[id], question{})
		cancel()
		switch {
		case err != nil:
			missing = append(missing, fmt.Sprintf("server %d at %s: %v", id, n.o.Peers[id], err))
		case st.Cluster != "":
			return n.joinFormed(&st, say)
		case len(st.Peers) > 0 && !maps.Equal(st.Peers, n.o.Peers):
			missing = append(missing, peersDiffer(id, st.Peers, n.o.Peers).Error())
		default:
			births[id] = st.Birth
		}
	}
	if len(missing) > 0 {
		say("waiting for " + strings.Join(missing, "; "))
		return false, nil
	}
	if n.id != slices.Min(slices.Collect(maps.Keys(n.o.Peers))) {
		return false, nil
	}
	return n.form(ctx, births, say)
}

func peersDiffer(id uint32, theirs, ours map[uint32]string) error {
	return fmt.Errorf("server %d was started with other --peers: %s instead of %s; start all servers with the same list", id, listPeers(theirs), listPeers(ours))
}

// listPeers writes a list as --peers takes it.
func listPeers(peers map[uint32]string) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		parts = append(parts, fmt.Sprintf("%d=%s", id, peers[id]))
	}
	return strings.Join(parts, ",")
}

// form makes all servers, which are all empty, into a cluster. The others go
// first: one that misses the message recognises its birth in the list later.
func (n *Node) form(ctx context.Context, births map[uint32]string, say func(string)) (bool, error) {
	f := formation{Cluster: randomID(n.o.Rand), Births: births, Peers: n.o.Peers}
	for id, addr := range n.o.Peers {
		if id == n.id {
			continue
		}
		askCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := n.ask(askCtx, id, addr, question{Form: &f})
		cancel()
		if err != nil {
			say(fmt.Sprintf("forming the cluster: server %d: %v", id, err))
			return false, nil
		}
	}
	if err := n.accept(&f); err != nil {
		return false, err
	}
	n.log.Info("new cluster formed", "cluster", f.Cluster, "servers", len(births))
	return true, nil
}

// joinFormed joins a cluster that exists, if it expects this very directory or
// a new one in its place.
func (n *Node) joinFormed(st *peerStatus, say func(string)) (bool, error) {
	id := n.whoAmI()
	birth, known := st.Births[n.id]
	_, member := st.Members[n.id]
	switch {
	case known && birth == id.Birth && st.Formed != nil && !maps.Equal(st.Formed, n.o.Peers):
		say(peersDiffer(n.id, n.o.Peers, st.Formed).Error())
		return false, nil
	case known && birth == id.Birth:
		id.Cluster, id.Births, id.Peers = st.Cluster, st.Births, st.Formed
	case birth == "" && member:
		id.Cluster, id.Births = st.Cluster, st.Births
		delete(id.Births, n.id) // so that no configuration is made up from the list
	case birth != "":
		say(fmt.Sprintf("server %d was part of cluster %s with another data directory; this one is empty, so the server must not vote. If that directory is lost, on a server that runs: zlock member remove %d, then zlock member add %d %s. If server %d runs elsewhere, this one needs another --id",
			n.id, st.Cluster, n.id, n.id, n.o.Peers[n.id], n.id))
		return false, nil
	default:
		say(fmt.Sprintf("cluster %s does not know server %d. On a server that runs: zlock member add %d %s", st.Cluster, n.id, n.id, n.o.Peers[n.id]))
		return false, nil
	}
	return true, n.saveIdentity(id)
}

// checkTerm refuses to start from an old copy of the data directory: the
// others have seen this birth with a higher term than it remembers.
func (n *Node) checkTerm(ctx context.Context) error {
	term, err := n.stores.Stable.GetUint64([]byte("CurrentTerm"))
	if err != nil && err.Error() != keyNotFound {
		return err
	}
	for id, addr := range n.o.Peers {
		if id == n.id {
			continue
		}
		askCtx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		st, err := n.ask(askCtx, id, addr, question{})
		cancel()
		if err == nil && st.Seen > term {
			return fmt.Errorf("the data directory is an old copy: it remembers term %d, but server %d has seen this server in term %d; remove the directory, then remove this server from the cluster and add it again", term, id, st.Seen)
		}
	}
	return nil
}
