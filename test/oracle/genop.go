package oracle

import (
	"math"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// request() returns one request of an ordinary kind.
func (g *Generator) request(name string) Step {
	s := g.plain(name)
	s.Conn = name
	if g.chance(1) && s.Op != "setWatches" && s.Op != "setWatches2" {
		// Cut the record short, or add bytes after it. A cut through an integer always makes the
		// record undecodable.
		if g.chance(50) {
			s.Extra = one(g, "\x00", "\x01\x02\x03\x04", "trailing")
		} else if !strings.Contains("whoAmI ping sync getEphemerals reconfig deleteContainer", s.Op) {
			s.Cut = 1
		}
	} else if g.chance(2) {
		g.damage(&s)
	}
	if g.chance(2) {
		s.Xid = one[int32](g, -2, -3, -4, -8, 7, math.MaxInt32, math.MinInt32)
	}
	return s
}

// lengths are counts and lengths that no string or list can have.
var lengths = []string{"\xff\xff\xff\xff", "\xff\xff\xff\xfe", "\x80\x00\x00\x00", "\x7f\xff\xff\xff",
	"\x00\x10\x00\x00", "\x00\x00\x7f\xff"}

// damage() turns a request into one that no client sends. The result is either undecodable, so that a server
// must refuse it, or another valid request.
func (g *Generator) damage(s *Step) {
	n := len(s.encode(func(int) int64 { return 0 }))
	switch s.Op {
	case "exists", "getData", "getChildren", "getChildren2", "getACL", "getAllChildren", "getEphemerals", "sync":
		s.Patch = one(g, lengths...)
	case "multi":
		for _, op := range s.Ops {
			if strings.HasPrefix(op.Op, "create") {
				return // for damaged creates in a multi, ZooKeeper 3.8 has other rules than 3.9
			}
		}
		s.At, s.Patch = g.rng.IntN(max(n, 1)), one(g, lengths...)
	case "reconfig":
		s.Cut = 1 + g.rng.IntN(8)
	case "multiRead":
		s.At, s.Patch = g.rng.IntN(max(n, 1)), one(g, lengths[1:]...)
	case "create", "create2", "createContainer", "delete", "setData", "setACL":
		if guarded(s.Path) || s.ACL != "" && s.ACL != open {
			return
		}
		s.Patch = one(g, lengths...)
		if g.chance(50) {
			s.Patch = one(g, "\x00", "\x01", "\x02", "\x05", "\x08", " ", "/", "a", "\x7f", "\x00\x00",
				"\x00\x00\x00\x02")
		}
		if s.At = g.rng.IntN(max(n-4, 1)); g.chance(40) {
			s.At = 0
		}
	}
}

func (g *Generator) plain(name string) Step {
	switch n := g.rng.IntN(100); {
	case n < 22:
		return g.create()
	case n < 31:
		return Step{Op: "delete", Path: g.path(), Version: g.version()}
	case n < 40:
		return g.setData()
	case n < 43:
		return Step{Op: "setACL", Path: g.writable(), ACL: g.acl(), Version: g.version()}
	case n < 66:
		return g.read(name)
	case n < 70:
		return Step{Op: one(g, "getACL", "getAllChildren"), Path: g.path()}
	case n < 72:
		return Step{Op: "getEphemerals", Path: one(g, "", "/", g.path()), NullPath: g.chance(5)}
	case n < 74:
		return Step{Op: "sync", Path: g.path(), NullPath: g.chance(5)}
	case n < 75:
		return Step{Op: one(g, "whoAmI", "ping", "reconfig", "deleteContainer"), Path: g.path()}
	case n < 88:
		return g.watch(name)
	case n < 96:
		return g.multi()
	}
	return g.multiRead()
}

// writable() chooses a path as path() does, but never the path of a node that accepts only well-formed
// texts.
func (g *Generator) writable() string {
	for {
		p := g.path()
		if !guarded(p) && p != configPath {
			return p
		}
	}
}

func (g *Generator) setData() Step {
	return Step{Op: "setData", Path: g.writable(), Data: g.data(), Version: g.version(), NullPath: g.chance(1)}
}

func (g *Generator) create() Step {
	s := Step{
		Op: one(g, "create", "create", "create2", "create2", "createContainer", "createTTL"), Path: g.fresh(),
		Data: g.data(), ACL: g.acl(), TTL: -1, NullPath: g.chance(1),
	}
	if g.chance(15) {
		s.Path = g.writable()
	}
	switch s.Op {
	case "createContainer":
		s.Flags = jute.FlagContainer
		if g.chance(20) {
			s.Flags = one[int32](g, 0, 1, 2)
		}
	case "createTTL":
		s.Flags = one(g, jute.FlagPersistentTTL, jute.FlagPersistentSequentialTTL)
		s.TTL = one[int64](g, 1e9, 1e9, jute.MaxTTL, jute.MaxTTL+1, 0, -1, math.MinInt64, math.MaxInt64)
		if g.chance(10) {
			s.Flags, s.TTL = one[int32](g, 0, 1, 2, 4), 1000
		}
	default:
		s.Flags = one[int32](g, 0, 0, 0, 1, 1, 2, 2, 3, 3)
		if g.chance(5) {
			s.Flags = one[int32](g, 4, 5, 6, 7, -1, math.MaxInt32)
		}
	}
	// The next sequence number below a built-in node depends on the programs before, and differs between the
	// servers. So choose another path.
	if slash := strings.LastIndex(s.Path, "/"); s.sequential() &&
		(slash <= 0 || strings.HasPrefix(s.Path, "/zookeeper")) {
		s.Path = g.top() + s.Path
		if strings.HasPrefix(s.Path, "/zookeeper") || strings.LastIndex(s.Path, "/") == 0 {
			s.Path = g.top() + "/s-"
		}
	}
	return s
}

// read() returns a read that may set a watch.
func (g *Generator) read(name string) Step {
	s := Step{Op: one(g, "exists", "exists", "getData", "getData", "getChildren", "getChildren2"),
		Path: g.path(), NullPath: g.chance(1)}
	s.Watch = g.chance(50) && mode(name, s.Path) == "once" && !s.NullPath
	return s
}

// watch() returns a request about watches.
func (g *Generator) watch(name string) Step {
	path := g.path()
	kind := mode(name, path)
	switch n := g.rng.IntN(10); {
	case n < 4:
		// Choose an absolute path: zlockd refuses any other, while ZooKeeper accepts the watch, which never
		// fires.
		for kind == "once" || !strings.HasPrefix(path, "/") {
			path = g.path()
			kind = mode(name, path)
		}
		s := Step{Op: "addWatch", Path: path}
		if kind == "recursive" {
			s.Mode = jute.AddWatchRecursive
		}
		if g.chance(5) {
			s.Mode = one[int32](g, 2, -1, 99)
		}
		return s
	case n < 6:
		if mine := g.watched[name]; len(mine) > 0 && g.chance(70) {
			path = one(g, mine[max(0, len(mine)-8):]...)
		}
		// ZooKeeper 3.8 fails on a path that is not absolute.
		path = "/" + strings.TrimPrefix(path, "/")
		kind = mode(name, path)
		s := Step{Op: one(g, "removeWatches", "checkWatches"), Path: path, Mode: jute.WatcherAny}
		if kind == "once" {
			s.Mode = one(g, jute.WatcherChildren, jute.WatcherData, jute.WatcherAny)
		}
		if g.chance(5) {
			s.Mode = one[int32](g, 0, 6, -1)
		}
		return s
	case n < 8:
		return g.setWatches(name)
	}
	s := g.read(name)
	for mode(name, s.Path) != "once" {
		s = g.read(name)
	}
	s.Watch = !s.NullPath
	return s
}

// setWatches returns a request to register watches again, as after a reconnect.
func (g *Generator) setWatches(name string) Step {
	s := Step{Op: one(g, "setWatches", "setWatches2"), Back: g.rng.IntN(30)}
	if g.chance(5) {
		s.Back = -2
	}
	for range 1 + g.rng.IntN(6) {
		path := g.path()
		if path == configPath { // an ensemble writes this node, a single server does not
			continue
		}
		switch mode(name, path) {
		case "once":
			i := g.rng.IntN(3)
			s.Lists[i] = append(s.Lists[i], path)
		case "persistent":
			s.Lists[3] = append(s.Lists[3], path)
		case "recursive":
			s.Lists[4] = append(s.Lists[4], path)
		}
	}
	if s.Op == "setWatches" {
		s.Lists[3], s.Lists[4] = nil, nil
	}
	return s
}

func (g *Generator) multi() Step {
	s := Step{Op: "multi"}
	if g.chance(40) {
		// These operations build on each other, and succeed if the first one succeeds.
		p := g.fresh()
		story := []Step{
			{Op: one(g, "create", "create2", "createContainer"), Path: p, Data: g.data(), ACL: open},
			{Op: "setData", Path: p, Data: g.data(), Version: one[int32](g, 0, -1)},
			{Op: "check", Path: p, Version: one[int32](g, 1, 1, -1, 0)},
			{Op: one(g, "create", "create2"), Path: p + "/" + one(g, "a", "n-"), Data: g.data(), ACL: g.acl(),
				Flags: one[int32](g, 0, 1, 2, 3)},
			{Op: "create2", Path: p + "/n-", ACL: open, Flags: jute.FlagEphemeralSequential},
			{Op: "delete", Path: p + "/a", Version: -1},
			{Op: "delete", Path: p, Version: -1},
		}
		for _, op := range story {
			if g.chance(75) {
				s.Ops = append(s.Ops, g.inMulti(op))
			}
		}
		return s
	}
	for range g.rng.IntN(6) {
		switch n := g.rng.IntN(100); {
		case n < 45:
			s.Ops = append(s.Ops, g.inMulti(g.create()))
		case n < 60:
			// Delete no node of a limit: ZooKeeper compares a multi with the counters from before the multi, even if
			// the multi deletes the limit.
			s.Ops = append(s.Ops, Step{Op: "delete", Path: g.writable(), Version: g.version()})
		case n < 78:
			s.Ops = append(s.Ops, g.setData())
		case n < 97:
			check := Step{Op: "check", Path: g.path(), Version: g.version()}
			if check.Path == configPath {
				check.Version = -1 // an ensemble has written the node, a single server has not, so their versions differ
			}
			s.Ops = append(s.Ops, check)
		default:
			s.Ops = append(s.Ops, one(g, Step{Op: "exists", Path: g.path()}, Step{Op: "getData", Path: g.path()},
				Step{Op: "setACL", Path: g.path(), ACL: open, Version: -1}))
		}
	}
	return s
}

// inMulti makes the flags of a create match its operation, as every client does. If they do not match,
// ZooKeeper 3.8 follows the flags in a multi, but the operation in a single request.
func (g *Generator) inMulti(s Step) Step {
	switch {
	case s.Op == "createContainer":
		s.Flags = jute.FlagContainer
	case s.Op == "createTTL" && s.Flags < jute.FlagPersistentTTL:
		s.Flags = jute.FlagPersistentTTL
	case s.Flags >= jute.FlagContainer && s.Flags <= jute.FlagPersistentSequentialTTL && s.Op != "createTTL":
		s.Flags = jute.FlagPersistent
	}
	return s
}

func (g *Generator) multiRead() Step {
	s := Step{Op: "multiRead"}
	for range g.rng.IntN(5) {
		s.Ops = append(s.Ops, Step{Op: one(g, "getData", "getChildren"), Path: g.path(), Watch: g.chance(30)})
	}
	if g.chance(5) {
		s.Ops = append(s.Ops, Step{Op: one(g, "exists", "check", "delete"), Path: g.path(), Version: -1})
	}
	return s
}
