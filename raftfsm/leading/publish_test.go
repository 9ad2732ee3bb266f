package leading

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An operator may describe the servers in words of a ZooKeeper configuration. If several changes bring the
// same words, the leader proposes them once.
func TestWordsAreProposedOnce(t *testing.T) {
	t.Parallel()
	tm := termOf(t, applied.New())
	for i, words := range []string{"", "server.4=a:1:2", "server.4=a:1:2", "server.4=b:1:2",
		"server.4=b:1:2"} {
		must.OK(t, tm.note(&change.Change{Op: "describe", ID: 1, By: 2, Words: words}))
		expect.Equal(t, len(tm.acts.list), []int{0, 1, 1, 2, 2}[i], "proposed after %d changes", i+1)
	}
}

// A leader adds a server in the place of another. It first waits until the log has dropped the former
// server's directory. If the change or the term ends before that, the call fails.
func TestPredecessorIsForgottenFirst(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.OpenStream())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leads, led := termOf(t, a), termOf(t, a)
	led.ctx = over
	expect.OK(t, leads.forgetFirst(over, 7), "a server that never was")
	expect.Equal(t, status.Of(leads.forgetFirst(over, 1)), status.Interrupted, "the change has ended")
	expect.Equal(t, status.Of(led.forgetFirst(t.Context(), 1)), status.Interrupted, "the term has ended")
	waits := make(chan error, 1)
	go func() { waits <- leads.forgetFirst(t.Context(), 1) }()
	a.Entry(state.Forget(1, 5))
	expect.OK(t, <-waits)
}

// publisher returns a term of a server that has a peer port and knows no other member. The state applies none
// of the term's later proposals.
func publisher(t *testing.T) (*Term, *applied.State) {
	t.Helper()
	a := applied.New()
	m := state.Member{ID: 1, Incarnation: "a", ClientAddr: "h1:2181"}
	a.Entry(state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), 1)})
	tm := termOf(t, a)
	tm.o.Raft, tm.o.Port, tm.began = raftOf(t, a.FSM), port{}, time.Now().Add(-time.Hour)
	tm.news = newsOf(t, a.FSM, new(heard))
	tm.publish(false, 0)
	for _, act := range tm.proposes() {
		a.Block(entries.Block{Count: 1, Requests: []byte(act)})
	}
	tm.notice = notice{}
	return tm, a
}

// proposes() returns what a term has proposed since the last call.
func (tm *Term) proposes() (list []string) {
	for _, act := range tm.acts.list {
		list = append(list, string(act))
	}
	tm.acts.list = nil
	return list
}

// The leader publishes the list of members if it differs from the published one, or if an operator asks. In
// the middle of a group of changes it waits for the rest, and it waits until each server has said where
// clients reach it.
func TestWhenMembersArePublished(t *testing.T) {
	t.Parallel()
	tm, a := publisher(t)
	published := func() (text string) {
		a.View(func(s *state.State) { text, _ = config.Cut(s.ConfigData()) })
		return text
	}
	must.That(t, strings.Contains(published(), ";h1:2181"), "published: %s", published())
	long := time.Now().Add(-time.Hour)
	const once = "server.1="
	for _, c := range []struct {
		name  string
		tune  func()
		renew bool
		want  bool
	}{
		{"they are as they were", func() {}, false, false},
		{"an operator wants it", func() {}, true, true},
		{"others were proposed last", func() { tm.notice.last = "server.9=others" }, false, true},
		{"the same were proposed last", func() { tm.notice.last = published() }, false, false},
		{"the same were proposed last, and an operator wants it", func() { tm.notice.last = published() },
			true,
			true},
		{"words say more", func() {
			tm.notice.words = published()[:strings.Index(published(),
				";")] + ";0.0.0.0:7"
		}, false, true},
		{"more changes may follow", func() {
			tm.notice.last, tm.notice.silent = "server.9=others", time.Now().Add(time.Hour)
		}, false, false},
		{"more changes may follow, and an operator wants it", func() {
			tm.notice.last, tm.notice.silent = "server.9=others", time.Now().Add(time.Hour)
		}, true, true},
		{"no more changes follow", func() { tm.notice.last, tm.notice.silent = "server.9=others", long },
			false,
			true},
		{"the term has just begun", func() { tm.notice.last, tm.began = "server.9=others", time.Now() },
			false,
			true},
		{"it has no port", func() { tm.notice.last, tm.o.Port = "server.9=others", nil }, true, false},
	} {
		was := tm.o.Port
		tm.notice = notice{}
		tm.began = long
		c.tune()
		tm.publish(c.renew, 0)
		list := tm.proposes()
		expect.That(t, len(list) <= 1, "%s: proposes %q", c.name, list)
		expect.Equal(t, len(list) == 1, c.want, "%s: the members are published", c.name)
		if c.want && len(list) == 1 {
			expect.Has(t, list[0], once, "%s", c.name)
			expect.That(t, tm.notice.last != "", "%s: the leader has not noted what it published", c.name)
			expect.That(t, strings.HasSuffix(list[0], tm.notice.last), "%s: the leader published %q, and noted %q",
				c.name, list[0], tm.notice.last)
			tm.publish(false, 0)
			expect.Equal(t, len(tm.proposes()), 0, "%s: again", c.name)
		}
		tm.o.Port = was
	}
	tm.notice = notice{}
	tm.publish(true, 1)
	expect.Equal(t, len(tm.proposes()), 0, "a cluster without a member is published")
	a.Entry(state.Forget(1, 5)) // this server has not said yet where its clients reach it
	for _, began := range []time.Time{time.Now().Add(time.Hour), long} {
		tm.notice, tm.began = notice{}, began
		tm.publish(false, 0)
		expect.Equal(t, len(tm.proposes()) == 1, began == long, "published in a term that began at %v", began)
	}
}

// describe lists where clients reach each server. A server's own report counts first, and after that the
// operator's newest description. The list is incomplete if a server has neither.
func TestMembersAreDescribed(t *testing.T) {
	t.Parallel()
	a := applied.New()
	m := state.Member{ID: 1, Incarnation: "a", ClientAddr: "h1:1"}
	a.Entry(state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), 1)})
	a.Entry(state.Request{Op: state.OpWords,
		Body: []byte("server.2=b:2:3:participant;w2:2\nserver.3=c:2:3:participant;w3:2")})
	o := termOf(t, a).o
	server := func(id int, addr string, vote raft.ServerSuffrage) raft.Server {
		return raft.Server{ID: raft.ServerID(fmt.Sprint(id)), Address: raft.ServerAddress(addr),
			Suffrage: vote}
	}
	one, two, three := server(1, "a:2", raft.Voter), server(2, "b:2", raft.Nonvoter), server(3, "c:2",
		raft.Voter)
	zero, four := server(255, "z:2", raft.Voter), server(4, "d:2", raft.Voter)
	for _, c := range []struct {
		name     string
		servers  []raft.Server
		own      map[uint32]config.Server
		written  string
		want     string
		complete bool
	}{
		{"one that has said it", []raft.Server{one}, nil, "", "1 a:2 h1:1 true", true},
		{"one that has not, with words", []raft.Server{two, one}, nil, "",
			"1 a:2 h1:1 true, 2 b:2 w2:2 false",
			true},
		{"one that has not", []raft.Server{four}, nil, "", "4 d:2  true", false},
		{"one that has not beside one that has", []raft.Server{one, four}, nil, "",
			"1 a:2 h1:1 true, 4 d:2  true",
			false},
		{"one that has beside one that has not", []raft.Server{four, two}, nil, "",
			"2 b:2 w2:2 false, 4 d:2  true",
			false},
		{"words of the leader's own list", []raft.Server{four}, map[uint32]config.Server{4: {ID: 4,
			Peer:   "d:2",
			Client: "o4:2"}}, "", "4 d:2 o4:2 true", true},
		{"words of the state count more", []raft.Server{three}, map[uint32]config.Server{3: {ID: 3,
			Peer:   "c:2",
			Client: "o3:2"}}, "", "3 c:2 w3:2 true", true},
		{"words of a change count alone", []raft.Server{three, two}, nil, "server.3=c:2:3:participant;n3:2",
			"2 b:2  false, 3 c:2 n3:2 true", false},
		{"the one that a ZooKeeper numbers 0 is first", []raft.Server{one, zero}, nil, "",
			"255 z:2  true, 1 a:2 h1:1 true", false},
		{"none", nil, nil, "", "", true},
	} {
		o.Words = c.own
		list, complete := o.describe(a.State(), c.servers, c.written)
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprint(s.ID, " ", s.Peer, " ", s.Client, " ", s.Voter))
		}
		expect.Equal(t, strings.Join(got, ", "), c.want, "%s", c.name)
		expect.Equal(t, complete, c.complete, "%s: it is complete", c.name)
	}
}

// A server announces that it makes several changes of members in a row. Until it has made them, or a limited
// time is over, no other server can begin such a group. The group must start from the published members.
func TestChangesThatBelongTogether(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.OpenStream())
	a.Entry(state.Request{Op: state.OpConfig, Body: []byte("server.1=h:1:2:participant;h:3")})
	tm := termOf(t, a)
	now := tm.published()
	must.That(t, now != 0, "nothing is published")
	synctest.Test(t, func(t *testing.T) {
		tm.notice = notice{}
		for i, c := range []struct {
			wait  time.Duration
			by    uint32
			since int64
			want  error
		}{
			{0, 0, 5, nil},      // comes from no server: nothing is recorded
			{0, 2, 5, ErrStale}, // based on an older version of the member list
			{0, 2, now, nil},    // server 2 begins its changes
			{0, 2, 5, nil},      // server 2 continues
			{0, 3, now, ErrChanging},
			{moreWait - 1, 3, now, ErrChanging},
			{0, 2, 0, nil}, // server 2 continues
			{moreWait, 3, 5, ErrStale},
			{0, 3, now, nil}, // server 3 begins its changes
			{0, 2, now, ErrChanging},
			{moreWait, 2, 0, nil}, // server 2 begins again; 0 fits any version of the list
		} {
			time.Sleep(c.wait)
			err := tm.note(&change.Change{Op: "describe", ID: 1, By: c.by, Since: c.since})
			if c.want == nil {
				expect.OK(t, err, "change %d", i)
			} else {
				expect.Is(t, err, c.want, "change %d", i)
			}
		}
		tm.notice.silence(0)
		expect.OK(t, tm.note(&change.Change{Op: "describe", ID: 1, By: 3, Since: now}), "when they are done")
	})
}

// The leader proposes to remove the streams of former members, and no other streams.
func TestStreamsOfFormerMembersAreTakenAway(t *testing.T) {
	t.Parallel()
	a := applied.New()
	for id := uint32(1); id <= 4; id++ {
		m := state.Member{ID: id, Incarnation: fmt.Sprint("in", id)}
		a.Entry(state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), int64(id))})
	}
	a.Entry(state.Forget(4, 9))
	tm := termOf(t, a)
	tm.forget(a.State(), []raft.Server{{ID: "1"}, {ID: "3"}, {ID: "7"}})
	must.Equal(t, len(tm.acts.list), 1, "streams taken away")
	a.Entry(state.Request{Op: state.OpBarrier})
	a.Block(entries.Block{Count: 1, Requests: tm.acts.list[0]})
	for _, m := range a.State().Members() {
		expect.Equal(t, m.Incarnation == "", m.ID == 2 || m.ID == 4, "server %d is forgotten", m.ID)
	}
}

// A leader that removes a server may first publish the members without it. It does so only if the server
// itself asked for the removal, sent descriptions with the request, and announced no further changes.
func TestWhoSaysFarewell(t *testing.T) {
	t.Parallel()
	tm, _ := publisher(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		change change.Change
		says   bool
	}{
		{change.Change{ID: 9, By: 9, Words: "w"}, true},
		{change.Change{ID: 9, By: 1, Words: "w"}, false},
		{change.Change{ID: 9, By: 9}, false},
		{change.Change{ID: 9, By: 9, Words: "w", More: true}, false},
	} {
		expect.Equal(t, tm.farewell(over, &c.change), c.says, "%+v", c.change)
		expect.Equal(t, len(tm.proposes()) == 1, c.says, "%+v: published", c.change)
		expect.Equal(t, time.Now().Before(tm.notice.silent), c.says, "%+v: no other publishes", c.change)
		tm.notice.silence(0)
	}
}
