package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/script"
)

const threeServers = `server.1=h1:2888:2889:participant;h1:2181
server.2=h2:2888:2889:participant;h2:2181
server.3=h3:2888:2889:participant;h3:2181
version=10000002a`

// TestReconfigScripts runs testdata/reconfig/*.txt. In each block, a client of server 1, which leads servers
// 2 and 3, asks for a reconfig:
//
//	by 2                      server 2 carries out the changes
//	runs h4                   a server answers at h4:2888, and does not follow
//	down 2                    server 2 does not answer; `empty 2`: it answers, and has lost its log
//	refuse promote 4 broken   this change fails; also: unsafe, changing, stale, not-ready
//	before add 5 joins 5 h9   just before this change another operator adds server 5 at h9:2888
//	goal joining=4=h4:1:2;3   prints the configuration that the client's words mean
//	reconfig leaving=2,3      carries them out
//
// Further words are joining, members, version, patience=3s, without-right, and least=1, the smallest number
// of voters. In the words, _ is a blank and \n a new line, and THREE is the list of the three servers. A
// reconfig prints the changes of raft, and then the members and their version.
func TestReconfigScripts(t *testing.T) {
	script.Run(t, "testdata/reconfig/*.txt", func(t *testing.T, commands [][]string) (out string) {
		synctest.Test(t, func(t *testing.T) {
			n := newFakeNode()
			for _, words := range commands {
				out += n.run(t, words)
			}
		})
		return out
	})
}

var refusals = map[string]error{
	"broken": errors.New("the link broke"), "unsafe": status.Errorf(status.Unsafe, "no majority"),
	"changing": status.Errorf(status.Changing, "another"), "stale": status.Errorf(status.Stale, "others"),
	"not-ready": status.Errorf(status.NotReady, "it is behind"),
}

func (n *fakeNode) run(t *testing.T, words []string) string {
	id := func(n int) uint32 { return uint32(must.Get(strconv.Atoi(words[n]))(t)) }
	switch words[0] {
	case "by":
		n.id = id(1)
	case "runs":
		n.there[words[1]+":2888"] = true
	case "down":
		n.follow["h"+words[1]+":2888"] = false
	case "empty":
		n.follow["h"+words[1]+":2888"], n.there["h"+words[1]+":2888"] = false, true
	case "refuse":
		err := refusals[words[3]]
		must.Fails(t, err, "%v names no error", words)
		n.refuse[words[1]+" "+words[2]] = err
	case "before":
		n.before = map[string]func(){words[1] + " " + words[2]: func() {
			n.now = maps.Clone(n.now)
			n.now[id(4)] = config.Server{ID: id(4), Peer: words[5] + ":2888"}
		}}
	case "goal":
		w, least := wishOf(t, words[1:])
		_, to, version, err := goal(n.Config(), &w, least)
		if err != nil {
			return end(err) + "\n"
		}
		return fmt.Sprintf("%s, after version %x\n", to.words(), version)
	case "reconfig":
		return n.reconfig(t, words[1:])
	default:
		t.Fatalf("%v is no command", words)
	}
	return ""
}

func wishOf(t *testing.T, words []string) (w Wish, least int) {
	w, least = Wish{Version: -1, May: true}, 2
	blanks := strings.NewReplacer("THREE", strings.ReplaceAll(threeServers, "\n", `\n`))
	for _, word := range words {
		key, value, _ := strings.Cut(blanks.Replace(word), "=")
		value = strings.NewReplacer("_", " ", `\n`, "\n").Replace(value)
		switch key {
		case "joining":
			w.Joining = value
		case "leaving":
			w.Leaving = value
		case "members":
			w.Members = value
		case "version":
			w.Version = must.Get(strconv.ParseInt(value, 16, 64))(t)
		case "patience":
			w.Patience = must.Get(time.ParseDuration(value))(t)
		case "without-right":
			w.May = false
		case "least":
			least = must.Get(strconv.Atoi(value))(t)
		default:
			t.Fatalf("%q is no word of a reconfig", word)
		}
	}
	return w, least
}

func (n *fakeNode) reconfig(t *testing.T, words []string) string {
	w, least := wishOf(t, words)
	began := time.Now()
	err := Carry(t.Context(), n, w, least, slog.New(slog.DiscardHandler))
	var out strings.Builder
	if len(n.asked) == 0 {
		out.WriteString("no server is asked\n")
	}
	for _, made := range n.made {
		fmt.Fprintln(&out, made)
	}
	fmt.Fprintf(&out, "%v %s\n", time.Since(began), end(err))
	if len(n.made) > 0 {
		fmt.Fprintf(&out, "%s, version %x\n", n.now.words(), n.version)
	}
	return out.String()
}

// words() lists the servers of a configuration. A ! follows a server without a vote, and an address follows a
// server that is not at its usual one.
func (m Config) words() string {
	var list []string
	for _, s := range m.list(false) {
		word := strconv.Itoa(int(s.ID &^ (1 << 31)))
		if !s.Voter {
			word += "!"
		}
		if host, _, _ := strings.Cut(s.Peer, ":"); host != fmt.Sprint("h", s.ID) {
			word += " at " + s.Peer
		}
		list = append(list, word)
	}
	return "members " + strings.Join(list, ", ")
}

// fakeNode is server 1, the leader, of a cluster of servers 1, 2 and 3.
type fakeNode struct {
	id      uint32
	version int64
	now     Config
	there   map[string]bool // addresses of servers that answer
	follow  map[string]bool // addresses of servers that follow the leader
	refuse  map[string]error
	before  map[string]func() // what another operator does just before a change
	made    []string
	mu      sync.Mutex // guards the fields below, because servers are asked in parallel
	asked   []string
}

func newFakeNode() *fakeNode {
	n := &fakeNode{id: 1, there: map[string]bool{}, follow: map[string]bool{}, refuse: map[string]error{}}
	n.now, n.version = ParseConfig(threeServers)
	for _, at := range []string{"h1:2888", "h2:2888", "h3:2888"} {
		n.follow[at] = true
	}
	return n
}

func (n *fakeNode) ID() uint32     { return n.id }
func (n *fakeNode) Config() string { return fmt.Sprintf("%s\nversion=%x", n.now.text(), n.version) }

func (n *fakeNode) Servers() (list []status.Member) {
	for id, s := range n.now {
		list = append(list, status.Member{ID: id, Peer: s.Peer, Voter: s.Voter})
	}
	return list
}

func (n *fakeNode) Standing(_ context.Context, _ uint32, addr string) (there, follows bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, addr)
	return n.there[addr] || n.follow[addr], n.follow[addr]
}

func (n *fakeNode) ChangeMember(_ context.Context, c change.Change) error {
	what := fmt.Sprint(c.Op, " ", c.ID)
	if f := n.before[what]; f != nil {
		delete(n.before, what)
		f()
	}
	if _, is := n.now[c.ID]; is && c.Op == change.Add {
		return status.Errorf(status.IsMember, "server %d is a member already", c.ID)
	}
	if err := n.refuse[what]; err != nil {
		return err
	}
	n.made = append(n.made, what)
	s := n.now[c.ID]
	s.ID, s.Peer = c.ID, cmp.Or(c.Addr, s.Peer)
	n.now = maps.Clone(n.now)
	switch c.Op {
	case change.Remove:
		delete(n.now, c.ID)
	case change.Add:
		n.now[c.ID] = config.Server{ID: c.ID, Peer: c.Addr}
	case change.Promote, change.Vote:
		s.Voter = true
		n.now[c.ID] = s
	case change.Move:
		n.now[c.ID] = s
	case change.Demote:
		s.Voter = false
		n.now[c.ID] = s
	}
	if !c.More {
		n.version++
	}
	return nil
}
