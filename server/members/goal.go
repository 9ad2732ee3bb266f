package members

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// Wish is a client's request to change the members, in the terms of ZooKeeper's reconfig.
type Wish struct {
	Joining, Leaving, Members string
	Version                   int64 // the version that the client wants to change; -1: any version

	May      bool          // whether the client may change the members
	Patience time.Duration // how long to wait for servers that join
}

// Errors about wishes that cannot be carried out.
var (
	ErrVersion  = errors.New("the configuration has another version")
	ErrArgument = errors.New("such a configuration is impossible")
)

// goal() returns the configuration `from` that is now in force, with its version, and the configuration `to`
// that the wish asks for. `to` must have at least `least` voters. goal() asks no other server, and makes its
// checks in ZooKeeper's order.
func goal(text string, w *Wish, least int) (from, to Config, version int64, err error) {
	from, version = ParseConfig(text)
	if w.Version != -1 && w.Version != version {
		return nil, nil, 0, fmt.Errorf("%w: %x", ErrVersion, version)
	}
	to, err = from.next(w)
	switch {
	case errors.Is(err, config.ErrNumber):
		return nil, nil, 0, err
	case err != nil:
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrArgument, err)
	case to.voters() < least:
		return nil, nil, 0, fmt.Errorf("%w: the new configuration has %d voters, fewer than %d", ErrArgument,
			to.voters(), least)
	}
	return from, to, version, nil
}

// next() returns the configuration that a wish asks for, when m is in force. The wish may have a list of all
// members. Otherwise it has servers that leave, which are removed first, and servers that join, which are
// added then.
func (m Config) next(w *Wish) (Config, error) {
	if w.Members != "" {
		return wholeList(w.Members)
	}
	to := maps.Clone(m)
	for _, s := range splitList(w.Leaving) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: leaving server %q", config.ErrNumber, s)
		}
		delete(to, config.ServerID(n)) // no error if it is not a member: it has left before
	}
	for _, s := range splitList(w.Joining) {
		j, err := config.ParseServer(s)
		if err != nil {
			return nil, err
		}
		if j.Client == "" {
			return nil, fmt.Errorf("%q: the client port is missing", s)
		}
		for _, is := range to {
			if err := collide(&j, &is); err != nil {
				return nil, err
			}
		}
		to[j.ID] = j
	}
	return to, nil
}
