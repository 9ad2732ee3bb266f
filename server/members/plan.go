package members

import (
	"fmt"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// plan leads from one configuration to another, by single changes. It depends only on which servers follow,
// and asks none of them.
type plan struct {
	own      uint32 // the server that carries out the changes
	from, to Config
	ready    map[uint32]bool // by id: whether this voter of the new configuration follows, or could
	runs     map[uint32]bool // by id: whether this member of the old configuration follows
}

// safe returns an error if the running servers are no majority of the new configuration.
func (p *plan) safe() error {
	var voters []uint32
	for _, s := range p.to.list(true) {
		voters = append(voters, s.ID)
	}
	return change.Safe(voters, p.ready)
}

// possible() returns an error for a wish that a ZooKeeper could carry out, and this server cannot.
func (p *plan) possible() error {
	at := map[string]uint32{}
	for _, id := range p.to.ids(0) {
		s := p.to[id]
		is, was := p.from[id]
		switch other, taken := at[s.Peer]; {
		case !config.IsID(id):
			return fmt.Errorf("%s: an id is a number from 0 to %d", s.Peer, config.MaxID)
		case s.Peer[len(s.Peer)-2:] == ":0":
			return fmt.Errorf("server %d: port 0 cannot be reached", id)
		case taken:
			return fmt.Errorf("servers %d and %d have the same address %s", other, id, s.Peer)
		case was && is.Peer != s.Peer && p.runs[id]:
			return fmt.Errorf("server %d runs at %s: start it at %s instead, and the cluster takes the new address",
				id, is.Peer, s.Peer)
		}
		at[s.Peer] = id
	}
	return nil
}

// joins() returns the changes that come first: they add servers and votes. A server that runs must catch up
// before it gets its vote.
func (p *plan) joins() (list []change.Change) {
	for _, id := range p.to.ids(p.own) {
		s := p.to[id]
		is, was := p.from[id]
		switch {
		case !was && (p.ready[id] || !s.Voter):
			list = append(list, change.Change{Op: change.Add, ID: id, Addr: s.Peer})
		case was && is.Peer != s.Peer:
			list = append(list, change.Change{Op: change.Move, ID: id, Addr: s.Peer})
		}
		if s.Voter && !is.Voter && p.ready[id] {
			list = append(list, change.Change{Op: change.Promote, ID: id})
		}
	}
	return list
}

// rest() returns the changes after those of joins(). Their order keeps a majority that follows after each
// change: first members leave that do not follow, then servers are added that do not run, and then the other
// members leave. This server leaves last.
func (p *plan) rest() (list []change.Change) {
	leave := func(follows bool) {
		for _, id := range p.from.ids(p.own) {
			s, stays := p.to[id]
			switch is := p.from[id]; {
			case p.runs[id] != follows:
			case !stays:
				list = append(list, change.Change{Op: change.Remove, ID: id})
			case is.Voter && !s.Voter:
				list = append(list, change.Change{Op: change.Demote, ID: id})
			}
		}
	}
	leave(false)
	for _, id := range p.to.ids(p.own) {
		if is := p.from[id]; p.to[id].Voter && !is.Voter && !p.ready[id] {
			list = append(list, change.Change{Op: change.Vote, ID: id, Addr: p.to[id].Peer})
		}
	}
	leave(true)
	return list
}
