package admin

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/server/admin/exporter"
	"github.com/zlockd/zlockd/server/report"
)

// The answers to four-letter words have ZooKeeper's order, blanks and final newlines, because many programs
// parse them by line number or regular expression.

func renderSrvr(w io.Writer, s *report.Status) {
	renderVersion(w, s)
	renderNumbers(w, s)
}

func renderStat(w io.Writer, s *report.Status) {
	renderVersion(w, s)
	io.WriteString(w, "Clients:\n")
	renderConns(w, s, true)
	renderNumbers(w, s)
}

func renderVersion(w io.Writer, s *report.Status) {
	fmt.Fprintf(w, "Zookeeper version: %s\n", s.VersionLine())
	if s.Mode == report.ReadOnly {
		io.WriteString(w, "READ-ONLY mode; serving only read-only clients\n")
	}
}

func renderMntr(w io.Writer, s *report.Status) {
	exporter.Lines(s, func(name, value string, _ bool) {
		fmt.Fprintf(w, "zk_%s\t%s\n", name, value)
	})
}

func renderIsRO(w io.Writer, s *report.Status) {
	if s.Mode == report.ReadOnly {
		io.WriteString(w, "ro")
	} else {
		io.WriteString(w, "rw")
	}
}

func renderNumbers(w io.Writer, s *report.Status) {
	fmt.Fprintf(w, "Latency min/avg/max: %d/%s/%d\n", s.Latency.Min, report.Decimal(s.Latency.Avg),
		s.Latency.Max)
	fmt.Fprintf(w, "Received: %d\nSent: %d\nConnections: %d\nOutstanding: %d\n",
		s.Received, s.Sent, s.Conns, s.Outstanding)
	fmt.Fprintf(w, "Zxid: %s\nMode: %s\nNode count: %d\n", report.Hex(s.Zxid), s.Mode, s.Nodes)
	if s.Mode == report.Leader {
		fmt.Fprintf(w, "Proposal sizes last/min/max: %d/%d/%d\n", s.Proposals.Last, s.Proposals.Min,
			s.Proposals.Max)
	}
}

func renderConn(w io.Writer, c *report.Conn, brief bool) {
	fmt.Fprintf(w, " %s[%x](queued=%d,recved=%d,sent=%d", javaAddr(c.Addr), c.Interest, c.Queued, c.Received,
		c.Sent)
	if !brief && c.Session != 0 {
		fmt.Fprintf(w, ",sid=%s,lop=%s,est=%d,to=%d", report.Hex(c.Session), lastOp(c), c.Established.UnixMilli(),
			c.Timeout.Milliseconds())
		if c.LastCxid >= 0 {
			fmt.Fprintf(w, ",lcxid=%s", report.Hex(c.LastCxid))
		}
		fmt.Fprintf(w, ",lzxid=%s,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d", report.Hex(c.LastZxid),
			c.LastReply.Milliseconds(), c.LastLatency, c.Latency.Min, int64(c.Latency.Avg), c.Latency.Max)
	}
	io.WriteString(w, ")\n")
}

func lastOp(c *report.Conn) string {
	if c.LastOp == "" {
		return "NA"
	}
	return c.LastOp
}

func renderConns(w io.Writer, s *report.Status, brief bool) {
	for i := range s.ConnList {
		renderConn(w, &s.ConnList[i], brief)
	}
	io.WriteString(w, "\n")
}

func renderConf(w io.Writer, s *report.Status) {
	c := &s.Config
	fmt.Fprintf(w, "clientPort=%d\nsecureClientPort=%d\n", c.ClientPort, c.SecurePort)
	fmt.Fprintf(w, "dataDir=%s\ndataDirSize=%d\ndataLogDir=%s\ndataLogSize=%d\n", c.DataDir, s.DataDirSize,
		c.LogDir, s.LogDirSize)
	fmt.Fprintf(w, "tickTime=%d\nmaxClientCnxns=%d\n", c.TickTime.Milliseconds(), c.MaxClientCnxns)
	fmt.Fprintf(w, "minSessionTimeout=%d\nmaxSessionTimeout=%d\n", c.MinSessionTimeout.Milliseconds(),
		c.MaxSessionTimeout.Milliseconds())
	fmt.Fprintf(w, "clientPortListenBacklog=%d\nserverId=%d\n", c.ListenBacklog, confID(s))
	if !s.Ensemble() {
		return
	}
	peerType := 0
	if m, ok := s.Self(); ok && !m.Voter {
		peerType = 1
	}
	// These limits do not exist in zlockd, but some programs need them here. The values are those of ZooKeeper's
	// sample configuration.
	fmt.Fprintf(w, "initLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=%d\nquorumPort=%d\npeerType=%d\n",
		c.PeerPort, c.PeerPort, peerType)
	io.WriteString(w, "membership: \n")
	if s.ConfigText != "" {
		fmt.Fprintln(w, s.ConfigText)
		fmt.Fprintf(w, "version=%x", uint64(s.ConfigIndex))
		return
	}
	for _, m := range s.Members {
		line := config.Server{ID: m.ID, Peer: m.Peer, Client: m.Client, Voter: m.Voter}
		fmt.Fprintln(w, line.Line())
	}
	fmt.Fprintf(w, "version=%x", uint64(s.ConfigIndex))
}

// confID returns the id of the server as ZooKeeper shows it: 0 for a server without a cluster.
func confID(s *report.Status) int64 {
	if !s.Ensemble() {
		return 0
	}
	return int64(s.ID)
}

func renderEnvi(w io.Writer, s *report.Status) {
	io.WriteString(w, "Environment:\n")
	for _, p := range environment(s) {
		fmt.Fprintf(w, "%s=%s\n", p.Key, p.Value)
	}
}

// environment returns the environment of the process, with the version before it.
func environment(s *report.Status) []report.Pair {
	return append([]report.Pair{{Key: "zookeeper.version", Value: s.VersionLine()}}, s.Environment...)
}

func renderDirs(w io.Writer, s *report.Status) {
	fmt.Fprintf(w, "datadir_size: %d\nlogdir_size: %d\n", s.DataDirSize, s.LogDirSize)
}

func renderHash(w io.Writer, s *report.Status) {
	for _, d := range s.Digests {
		fmt.Fprintf(w, "%x: %d\n", uint64(d.Zxid), d.Digest)
	}
}

func renderWchs(w io.Writer, s *report.Status) {
	fmt.Fprintf(w, "%d connections watching %d paths\nTotal watches:%d\n", s.WatchConns, s.WatchPaths, s.Watches)
}

func renderWchc(w io.Writer, s *report.Status) {
	renderPaths(w, s.WatchList, "")
	io.WriteString(w, "\n")
}

// renderPaths writes a line for each session, with its id and the text `end`, and below it the session's
// paths.
func renderPaths(w io.Writer, list []report.SessionPaths, end string) {
	for _, l := range list {
		fmt.Fprintf(w, "%s%s\n", report.Hex(l.Session), end)
		for _, p := range l.Paths {
			fmt.Fprintf(w, "\t%s\n", p)
		}
	}
}

func renderWchp(w io.Writer, s *report.Status) {
	paths, byPath := watchersByPath(s.WatchList)
	for _, p := range paths {
		fmt.Fprintf(w, "%s\n", p)
		for _, id := range byPath[p] {
			fmt.Fprintf(w, "\t%s\n", report.Hex(id))
		}
	}
	io.WriteString(w, "\n")
}

// watchersByPath sorts the same watches by path: it returns the paths, and the sessions that watch each.
func watchersByPath(list []report.SessionPaths) (paths []string, byPath map[string][]int64) {
	byPath = make(map[string][]int64)
	for _, l := range list {
		for _, p := range l.Paths {
			if byPath[p] == nil {
				paths = append(paths, p)
			}
			byPath[p] = append(byPath[p], l.Session)
		}
	}
	return paths, byPath
}

// javaDate is the form of Java's Date.toString.
const javaDate = "Mon Jan 02 15:04:05 MST 2006"

func renderDump(w io.Writer, s *report.Status) {
	io.WriteString(w, "SessionTracker dump:\n")
	if sets := sessionSets(s); len(sets) > 0 || s.Mode != report.Follower && s.Mode != report.Observer {
		n := 0
		for _, set := range sets {
			n += len(set.items)
		}
		fmt.Fprintf(w, "Session Sets (%d)/(%d):\n", len(sets), n)
		for _, set := range sets {
			fmt.Fprintf(w, "%d expire at %s:\n", len(set.items), set.at.Format(javaDate))
			for _, x := range set.items {
				fmt.Fprintf(w, "\t%s\n", report.Hex(x.ID))
			}
		}
	} else {
		fmt.Fprintf(w, "Global Sessions(%d):\n", len(s.SessionList))
		for _, x := range s.SessionList {
			fmt.Fprintf(w, "%s\t%dms\n", report.Hex(x.ID), x.Timeout.Milliseconds())
		}
	}
	fmt.Fprintf(w, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(s.Ephemerals))
	renderPaths(w, s.Ephemerals, ":")
	sets := expirySets(s, s.ConnList, func(c report.Conn) time.Time {
		if c.Expires.IsZero() {
			return s.Now
		}
		return c.Expires
	})
	fmt.Fprintf(w, "Connections dump:\nConnections Sets (%d)/(%d):\n", len(sets), len(s.ConnList))
	for _, set := range sets {
		fmt.Fprintf(w, "%d expire at %s:\n", len(set.items), set.at.Format(javaDate))
		for _, c := range set.items {
			fmt.Fprintf(w, "\tip: %s sessionId: %s\n", javaAddr(c.Addr), report.Hex(c.Session))
		}
	}
}

// expirySet holds the sessions or connections that expire in the same tick.
type expirySet[T any] struct {
	uptime int64     // end of the tick by the uptime clock, in ms
	at     time.Time // end of the tick by the wall clock
	items  []T
}

// sessionSets groups sessions by the tick in which they expire. It leaves out those whose deadline this
// server does not know.
func sessionSets(s *report.Status) []expirySet[report.Session] {
	var known []report.Session
	for _, x := range s.SessionList {
		if !x.Expires.IsZero() {
			known = append(known, x)
		}
	}
	return expirySets(s, known, func(x report.Session) time.Time { return x.Expires })
}

// expirySets groups the elements of `list` by the tick in which they expire, the earliest tick first.
func expirySets[T any](s *report.Status, list []T, expires func(T) time.Time) []expirySet[T] {
	tick := max(s.Config.TickTime.Milliseconds(), 1)
	byTick := make(map[int64]*expirySet[T])
	for _, x := range list {
		at := max(s.Uptime.Milliseconds()+expires(x).Sub(s.Now).Milliseconds(), 0)
		at = (at/tick + 1) * tick
		set := byTick[at]
		if set == nil {
			set = &expirySet[T]{uptime: at, at: s.Now.Add(time.Duration(at)*time.Millisecond - s.Uptime)}
			byTick[at] = set
		}
		set.items = append(set.items, x)
	}
	out := make([]expirySet[T], 0, len(byTick))
	for _, set := range byTick {
		out = append(out, *set)
	}
	slices.SortFunc(out, func(a, b expirySet[T]) int { return int(a.uptime - b.uptime) })
	return out
}
