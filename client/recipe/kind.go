package recipe

import (
	"fmt"
	"iter"
	"math"
)

// Use is the kind of lock for which a path is used.
//
// Different kinds of locks on one path do not exclude each other by themselves, because each looks only at
// nodes of its own kind. So an attempt makes its node and then, before the grant, searches the directory for
// holders of other kinds. Of two attempts at the same time at least one sees the other, because each makes
// its node first. For kinds that may have no node, the data of the directory show the kind.
type Use uint8

const (
	UseQueue       Use = iota // numbered nodes; Rule.Place distinguishes their kinds
	UsePolicy                 // read-write lock with a policy
	UseSimple                 // one node named lock, of another program
	UsePermits                // semaphore with nodes in leases
	UseBarePermits            // kazoo's semaphore: nodes named by an id alone
)

// useOf returns the use that the name of a directory's child shows.
func useOf(name string) (Use, bool) {
	switch {
	case name == SimpleName:
		return UseSimple, true
	case name == PermitsName:
		return UsePermits, true
	case IsPolicyNode(name):
		return UsePolicy, true
	}
	if c, _, ok := ParseName(name); ok && c.Kind != RoleLease {
		return UseQueue, true
	}
	if _, ok := ParseHex(name); ok {
		return UseBarePermits, true
	}
	return 0, false
}

// Rivals returns the children of a path whose names belong to another kind of lock, with that use. The client
// refuses a contender of this use if a rival is alive: if it is ephemeral, or, with UsePermits, if it has a
// permit.
func (own Use) Rivals(names []string) iter.Seq2[string, Use] {
	return func(yield func(string, Use) bool) {
		for _, name := range names {
			if name[0] == '_' && own == UseQueue {
				continue // most are contenders of the queue itself
			}
			if u, ok := useOf(name); ok && u != own && !yield(name, u) {
				return
			}
		}
	}
}

// census collects facts that decide whether the contenders of a queue see each other.
type census struct {
	foreign, late bool
	kazoo, peers  bool      // the queue has contenders of kazoo, and of programs that may not see them
	families      [3]string // a contender of each family
	stranger      Contender // a contender of another program
}

// add counts a contender of the queue. A guest is a kazoo lock that is configured to look at
// package client's nodes too.
func (s *census) add(c Contender, guest bool) {
	s.late = s.late || c.Seq < 0 || c.Seq > maxForeignSeq
	s.kazoo = s.kazoo || guest
	if f := &s.families[c.Kind.Family()]; *f == "" {
		*f = c.Name
	}
	if c.Maker == MakerSelf {
		return
	}
	s.foreign = true
	s.peers = s.peers || !guest
	if s.stranger.Name == "" {
		s.stranger = c
	}
}

// check returns an error if a contender cannot read or order the names of all others.
func (s *census) check(q Rule) error {
	switch {
	case s.kazoo && s.peers && q.Layout == LayoutCurator:
		return fmt.Errorf("%w: kazoo and Curator cannot see each other", ErrMixedLayout)
	case s.foreign && s.late:
		return ErrSequenceExhausted
	}
	return nil
}

// oneFamily returns an error if a contender of another program does not look at all the others. Contenders of
// package client do; contenders of Curator's recipes look only at their own family.
func (s *census) oneFamily(q Rule) error {
	if !s.foreign || q.Layout != LayoutCurator {
		return nil
	}
	f := s.stranger.Kind.Family()
	if f != q.Kind.Family() {
		return fmt.Errorf("%w: %s belongs to a %v of another program, which does not see a "+
			"%v", ErrMixedLayout,
			s.stranger.Name, f, q.Kind.Family())
	}
	for other, name := range s.families {
		if name != "" && Family(other) != f {
			return fmt.Errorf("%w: %s belongs to another program, which does not see %s", ErrMixedLayout,
				s.stranger.Name, name)
		}
	}
	return nil
}

// maxForeignSeq is the last number for which clients that compare text agree with this package's order, less
// a million for nodes that are being created.
const maxForeignSeq = math.MaxInt32 - 1_000_000
