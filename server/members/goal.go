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

// goal() returns the present configuration, the configuration that a wish asks for, and the version of the
// present one. The parameter `least` is the smallest allowed number of voters of the new configuration.
// goal() asks no other server. It makes its checks in the same order as ZooKeeper.
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

// next() returns the configuration that a wish asks for; m is the present one. If the wish lists all new
// members, the result is that list. Otherwise the servers that leave are removed first, and then the servers
// that join are added.
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
		delete(to, config.ServerID(n)) // if the server is not a member, it has left already
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
