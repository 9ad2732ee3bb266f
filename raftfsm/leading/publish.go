package leading

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

const (
	// how long a voter may take to report its version; not long, because all voters were up a moment ago
	foundingWait = 3 * time.Second
	membersWait  = 2 * time.Second // how long a server may take to say where clients reach it
	moreWait     = 3 * time.Second // how long to wait for the next of several changes

	farewellWait = time.Second
	farewellLook = 5 * time.Millisecond
)

// Errors of a change that another change prevents; they may come from another server.
var (
	ErrChanging = status.Errorf(status.Changing, "another change of members is under way")
	ErrStale    = status.Errorf(status.Stale, "the members have changed since the request was made")
)

// found() begins a new cluster's history, before anything else is proposed.
func (o *Options) found(ctx context.Context) error {
	if o.State.Zxid() != 0 {
		return nil
	}
	entry := state.Founding
	var members []config.Server
	if len(o.Disk.Identity().Peers) > 0 {
		members, _ = o.describe(new(state.State), o.Raft.Servers(), "")
		if !o.understand(ctx, foundingVersion) {
			entry = state.OldFounding
		}
	}
	return consensus.Await(ctx, o.Raft.Apply(entry(members, o.Now().UnixMilli()), time.Second))
}

// describe() returns raft's servers as they will be published. The list is not complete until all servers
// have said where clients reach them.
func (o *Options) describe(s *state.State, servers []raft.Server,
	written string) (list []config.Server, complete bool) {
	if written == "" {
		written = s.Words()
	}
	words := map[uint32]config.Server{}
	lines, _ := config.Parse(written)
	for _, w := range lines {
		words[w.ID] = w
	}
	complete = true
	for _, srv := range servers {
		m, _ := s.Member(peer.ParseID(srv.ID))
		is := config.Server{ID: peer.ParseID(srv.ID), Peer: string(srv.Address), Client: m.ClientAddr,
			Voter: srv.Suffrage == raft.Voter}
		is.Describe(o.Words)
		is.Describe(words)
		list = append(list, is)
		complete = complete && (m.Incarnation != "" || is.Client != "")
	}
	slices.SortFunc(list, func(a, b config.Server) int {
		return int(a.ID%config.ZeroID) - int(b.ID%config.ZeroID)
	})
	return list, complete
}

// note() takes the descriptions that come with a change. Changes that belong together come from one server
// (By) and start from one published version (Since). Until they are done, or moreWait after the last of them,
// changes by other servers are refused.
func (t *Term) note(c *change.Change) error {
	if c.By == 0 {
		return nil
	}
	version := t.published()
	t.notice.mu.Lock()
	defer t.notice.mu.Unlock()
	switch silent := time.Now().Before(t.notice.silent); {
	case silent && c.By != t.notice.by:
		return ErrChanging
	case !silent && c.Since != 0 && c.Since != version:
		return ErrStale
	}
	t.notice.silent, t.notice.by = time.Now().Add(moreWait), c.By
	if c.Words == "" || c.Words == t.notice.words {
		return nil
	}
	t.notice.words = c.Words
	t.propose(state.Request{Op: state.OpWords, Body: []byte(c.Words)})
	return nil
}

// farewell() prepares the removal of a server that asked for it. It publishes the members without that
// server, and waits until the server has seen the new list: while it is a member, it can still answer its
// client. Then the caller removes the server. If that fails, the full list is published again.
func (t *Term) farewell(ctx context.Context, c *change.Change) bool {
	if c.By != c.ID || c.Words == "" || c.More {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, farewellWait)
	defer cancel()
	was := t.published()
	t.notice.silence(moreWait)
	t.publish(true, c.ID)
	f := t.o.State
	if f.Wait(ctx.Done(), func() bool { return t.published() != was }) {
		end := f.Index()
		for t.Progress()[c.ID] < end && ctx.Err() == nil { // 0 at first if the server led until now
			signal.Pause(ctx, farewellLook)
		}
	}
	return true
}

// published() returns the version of the members that clients see.
func (t *Term) published() (version int64) {
	t.o.State.View(func(s *state.State) { _, version = config.Cut(s.ConfigData()) })
	return version
}

// For the duration d, silence() makes the leader refuse changes by other servers, and makes publish() wait
// unless its `renew` is true. If d is 0, silence() ends that time.
func (p *notice) silence(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = time.Now().Add(d)
}

// PublishMembers keeps /zookeeper/config and the member table in step with
// raft's configuration.
func (t *Term) PublishMembers() { t.publish(false, 0) }

// publish() publishes the members except the server `without` (0: all of them). If `renew` is true, it
// publishes a new version even if nothing changed.
func (t *Term) publish(renew bool, without uint32) {
	if t.o.Port == nil {
		return
	}
	servers := t.o.Raft.Servers()
	t.news.Follow(servers)
	t.notice.mu.Lock()
	defer t.notice.mu.Unlock()
	t.o.State.View(func(s *state.State) {
		t.forget(s, servers)
		servers = slices.DeleteFunc(servers, func(srv raft.Server) bool {
			return peer.ParseID(srv.ID) == without
		})
		list, complete := t.o.describe(s, servers, t.notice.words)
		waits := !complete && time.Since(t.began) < membersWait || time.Now().Before(t.notice.silent)
		if waits && !renew || len(list) == 0 {
			return
		}
		was := t.notice.last // compare with the last proposal, because it may not be applied yet
		if was == "" {
			was, _ = config.Cut(s.ConfigData())
		}
		text := config.Text(list)
		if was != text || renew || !s.Configured() && t.notice.last == "" {
			t.notice.last = text
			t.propose(state.Request{Op: state.OpConfig, Body: []byte(text)})
		}
	})
}

// forget() proposes to drop the streams of servers that are no longer members.
func (t *Term) forget(s *state.State, servers []raft.Server) {
	for _, m := range s.Members() {
		is := func(srv raft.Server) bool { return peer.ParseID(srv.ID) == m.ID }
		if m.Incarnation != "" && !slices.ContainsFunc(servers, is) {
			t.propose(state.Forget(m.ID, stream.Nonce(t.o.Rand)))
		}
	}
}

// forgetFirst makes the cluster expect an empty data directory from a server that will be added. If an
// earlier server had this id, the leader that removed it may have ended before it called forget().
func (t *Term) forgetFirst(ctx context.Context, id uint32) error {
	if t.o.Incarnation(id) == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	t.propose(state.Forget(id, stream.Nonce(t.o.Rand)))
	if !t.o.State.Wait(ctx.Done(), func() bool { return t.o.Incarnation(id) == "" }) {
		return status.With(status.Interrupted, ctx.Err())
	}
	return nil
}
