package admin

import (
	"net/url"
	"strconv"

	"github.com/zlockd/zlockd/server/report"
)

// command is one row of the table of HTTP commands. ZooKeeper's AdminServer has the same names and aliases.
type command struct {
	name    string
	aliases []string
	need    report.Need
	always  bool // answered even if the server does not serve clients
	heavy   bool // the cost of the answer grows with the number of clients, nodes or watches
	// changes says that the command changes state. Then a GET never runs it.
	changes bool
	// answer() returns the members of the JSON answer; `command` and `error` are added later. If the command
	// fails, `no` is the text for `error`; otherwise it is "".
	answer func(s *report.Status, args url.Values) (members object, no string)
}

// fine() makes the function `answer` of a command that cannot fail.
func fine(f func(*report.Status) object) func(*report.Status, url.Values) (object, string) {
	return func(s *report.Status, _ url.Values) (object, string) { return f(s), "" }
}

// commandTable returns the commands in the order of their names, in which /commands lists them.
func (a *Admin) commandTable() []command {
	resets := func(what func(Source)) func(*report.Status, url.Values) (object, string) {
		return fine(func(*report.Status) object {
			what(a.o.Source)
			return nil
		})
	}
	nothing := fine(func(*report.Status) object { return nil })
	return []command{
		{name: "configuration", aliases: []string{"conf", "config"}, answer: fine(jsonConfiguration)},
		{name: "connection_stat_reset", aliases: []string{"crst"}, changes: true,
			answer: resets(Source.ResetConns)},
		{name: "connections", aliases: []string{"cons"}, need: report.NeedConns, heavy: true,
			answer: fine(func(s *report.Status) object { return jsonConnections(s, jsonConnection) })},
		{name: "dirs", need: report.NeedDirs, answer: fine(func(s *report.Status) object {
			return object{{"datadir_size", s.DataDirSize}, {"logdir_size", s.LogDirSize}}
		})},
		{name: "dump", need: report.NeedSessions | report.NeedEphemerals, heavy: true, answer: fine(jsonDump)},
		{name: "environment", aliases: []string{"env", "envi"}, need: report.NeedProcess, always: true,
			answer: fine(func(s *report.Status) object { return jsonPairs(environment(s)) })},
		{name: "get_trace_mask", aliases: []string{"gtmk"}, always: true,
			answer: fine(func(*report.Status) object { return object{{"tracemask", a.mask.Load()}} })},
		{name: "hash", answer: fine(jsonHash)},
		{name: "initial_configuration", aliases: []string{"icfg"}, answer: fine(func(s *report.Status) object {
			if s.Config.File == "" {
				return object{{"initial_configuration", nil}}
			}
			return object{{"initial_configuration", s.Config.File}}
		})},
		{name: "is_read_only", aliases: []string{"isro"}, answer: fine(func(s *report.Status) object {
			return object{{"read_only", s.Mode == report.ReadOnly}}
		})},
		{name: "last_snapshot", aliases: []string{"lsnp"}, answer: fine(jsonLastSnapshot)},
		{name: "leader", aliases: []string{"lead"}, answer: func(s *report.Status, _ url.Values) (object, string) {
			if !s.Ensemble() {
				return nil, "server is not initialized"
			}
			return object{{"is_leader", s.Mode == report.Leader}, {"leader_id", s.Leader},
				{"leader_ip", withoutPort(s.LeaderAddr)}}, ""
		}},
		{name: "monitor", aliases: []string{"mntr"},
			need: report.NeedMetrics | report.NeedDirs | report.NeedProcess, always: true,
			answer: fine(jsonMonitor)},
		{name: "observer_connection_stat_reset", aliases: []string{"orst"}, changes: true, answer: nothing},
		{name: "observers", aliases: []string{"obsr"}, answer: fine(jsonObservers)},
		{name: "ruok", answer: nothing},
		{name: "server_stats", aliases: []string{"srvr"}, need: report.NeedDirs | report.NeedMetrics,
			answer: fine(jsonServerStats)},
		{name: "set_trace_mask", aliases: []string{"stmk"}, always: true, changes: true,
			answer: func(_ *report.Status, args url.Values) (object, string) {
				mask, err := strconv.ParseInt(args.Get("traceMask"), 10, 64)
				if err != nil {
					return nil, "setTraceMask requires long traceMask argument"
				}
				a.mask.Store(mask)
				return object{{"tracemask", mask}}, ""
			}},
		{name: "stat_reset", aliases: []string{"srst"}, changes: true, answer: resets(Source.ResetStats)},
		{name: "stats", aliases: []string{"stat"},
			need: report.NeedDirs | report.NeedMetrics | report.NeedConns, heavy: true,
			answer: fine(func(s *report.Status) object {
				return append(jsonServerStats(s), jsonConnections(s, jsonBrief)...)
			})},
		{name: "system_properties", aliases: []string{"sysp"}, need: report.NeedProcess, always: true,
			answer: fine(func(s *report.Status) object { return jsonPairs(s.Environment) })},
		{name: "voting_view", answer: fine(jsonVotingView)},
		{name: "watch_summary", aliases: []string{"wchs"}, answer: fine(func(s *report.Status) object {
			return object{{"num_connections", s.WatchConns}, {"num_paths", s.WatchPaths},
				{"num_total_watches", s.Watches}}
		})},
		{name: "watches", aliases: []string{"wchc"}, need: report.NeedWatches, heavy: true,
			answer: fine(func(s *report.Status) object {
				return object{{"session_id_to_watched_paths", jsonSessionPaths(s.WatchList)}}
			})},
		{name: "watches_by_path", aliases: []string{"wchp"}, need: report.NeedWatches, heavy: true,
			answer: fine(jsonWatchesByPath)},
		{name: "zabstate", always: true, answer: fine(jsonZabState)},
	}
}

// runCommand returns the whole answer of a command. The argument `name` is the name that the request used.
func (a *Admin) runCommand(c *command, name string, need report.Need, args url.Values) object {
	s := a.o.Source.Status(c.need | need)
	if !s.Answers() && !c.always {
		return object{{"command", name}, {"error", notServing}}
	}
	o, no := c.answer(s, args)
	if s.Truncated != "" {
		o = append(o, member{"truncated", s.Truncated})
	}
	if no != "" { // in an error ZooKeeper writes these two members in the other order
		return append(o, member{"error", no}, member{"command", c.name})
	}
	return append(o, member{"command", c.name}, member{"error", nil})
}
