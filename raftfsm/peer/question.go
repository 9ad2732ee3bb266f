package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// AnswerTime is how long a server may take to answer a question.
const AnswerTime = 10 * time.Second

// Status is what a server reports about itself to another server.
type Status struct {
	ID          uint32 `json:"id"`
	Cluster     string `json:"cluster"`
	Incarnation string `json:"incarnation"`
	// the incarnation of each server; empty: the server may join with a new directory
	Incarnations map[uint32]string `json:"incarnations"`
	AsOf         uint64            `json:"as_of,omitempty"` // log index at which Incarnations were right
	Peers        map[uint32]string `json:"peers"`           // the addresses in the server's --peers
	// the addresses in the --peers with which the server's cluster was formed
	Formed  map[uint32]string `json:"formed"`
	Members map[uint32]string `json:"members"` // addresses of the members in the server's raft configuration
	// the highest values that the asker's directory has shown to the server
	Known  Shown  `json:"known"`
	Now    Shown  `json:"now"` // the present values of the server's own directory
	Leader uint32 `json:"leader"`

	Observers       []uint32 `json:"observers,omitempty"` // the servers of Peers without a vote, sorted
	FormedObservers []uint32 `json:"formed_observers,omitempty"`

	Linked  uint32 `json:"linked"`  // id of the leader to which the server has a link; 0: no link
	Up      bool   `json:"up"`      // whether the server's raft runs
	Version int    `json:"version"` // newest version of the messages between servers that the server understands

	Silent int64 `json:"silent"`           // ms since the server last heard from a leader
	Stands bool  `json:"stands,omitempty"` // whether the server stands for election

	// Config is the index of the log entry that contains the server's raft configuration.
	Config  uint64 `json:"config,omitempty"`
	Release string `json:"release,omitempty"` // version of the server's program
	Waits   string `json:"waits,omitempty"`   // why the server does not serve clients; empty: it serves clients

	Told

	LastTerm  uint64 `json:"last_term"` // term of the last entry in the server's log
	LastIndex uint64 `json:"last_index"`
}

// Told is the part of an answer that follows the status.
type Told struct {
	// the members, and how far each has applied the log
	All    map[uint32]status.Member `json:"all,omitempty"`
	Probed *status.Found            `json:"probed,omitempty"` // what a probe found
}

// Formation is the message that makes servers into a cluster.
type Formation struct {
	Cluster      string            `json:"cluster"`
	Incarnations map[uint32]string `json:"incarnations"`
	Peers        map[uint32]string `json:"peers"`
	Observers    []uint32          `json:"observers,omitempty"` // the servers of Peers without a vote, sorted
}

// Place is where a server may be reached.
type Place struct {
	ID   uint32 `json:"id"`
	Addr string `json:"addr"`
}

// Question is a message between servers outside raft. Every answer contains the status of the asked server.
// An empty question asks only for the status.
type Question struct {
	Form   *Formation     `json:"form,omitempty"`
	Member *change.Change `json:"member,omitempty"`
	Reach  *Place         `json:"reach,omitempty"` // can the asked server reach a server there?
	Probe  *Place         `json:"probe,omitempty"` // could the server there be a member?

	Progress bool `json:"progress,omitempty"` // how far are the members?
	Tickets  bool `json:"tickets,omitempty"`  // allow tickets in the cluster
}

type reply struct {
	status.Failure
	Status Status `json:"status"`
}

// Ask puts one question to a server. Ask may return an error together with the server's status. If the
// connection ends or the time runs out before the answer arrives, the error has the code status.Interrupted.
func (p *Port) Ask(ctx context.Context, id uint32, addr string, q Question) (Status, error) {
	c, err := p.Call(ctx, Ask, id, addr)
	if err != nil {
		if late := net.Error(nil); connEnded(err) || ctx.Err() != nil || errors.As(err, &late) && late.Timeout() {
			err = status.With(status.Interrupted, err) // the server's process has just ended, or hangs
		}
		return Status{}, err
	}
	defer c.Close()
	if d, ok := ctx.Deadline(); ok {
		c.SetDeadline(d)
	}
	var r reply
	if err := writeJSON(c, &q); err != nil {
		return Status{}, status.With(status.Interrupted, err)
	}
	if err := readJSON(c, &r); err != nil {
		return Status{}, status.With(status.Interrupted, err)
	}
	return r.Status, r.Err()
}

// Answer is one server's answer, or the error if there is no answer.
type Answer struct {
	Place
	Status Status
	Err    error
}

// AskAll puts one question to several servers at once. The channel delivers each answer as it arrives, and is
// closed after the last answer. When ctx ends, errors take the place of the missing answers. A caller that
// has enough answers ends ctx.
func (p *Port) AskAll(ctx context.Context, servers []Place, q Question) <-chan Answer {
	answers := make(chan Answer, len(servers))
	var asked sync.WaitGroup
	for _, at := range servers {
		asked.Go(func() {
			a := Answer{Place: at}
			a.Status, a.Err = p.Ask(ctx, at.ID, at.Addr, q)
			answers <- a
		})
	}
	go func() {
		asked.Wait()
		close(answers)
	}()
	return answers
}

// answer() answers one question.
func (p *Port) answer(c net.Conn, asker *Greeting) {
	c.SetDeadline(time.Now().Add(greetTime))
	var q Question
	if err := readJSON(c, &q); err != nil {
		return
	}
	c.SetDeadline(time.Now().Add(AnswerTime))
	ctx, cancel := context.WithTimeout(p.ctx, AnswerTime)
	defer cancel()
	told, err := p.o.Host.Answer(ctx, &q)
	r := reply{status.Failed(err), p.o.Host.Status(asker)}
	r.Status.Told = told
	if err := writeJSON(c, &r); err != nil {
		p.o.Logger.Debug("answer to a peer", "err", err)
	}
}
