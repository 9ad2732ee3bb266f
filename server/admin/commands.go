package admin

import (
	"net/url"
	"strconv"
)

// command is one row of the table of HTTP commands. Its name and aliases are
// those of ZooKeeper's AdminServer.
type command struct {
	name    string
	aliases []string
	need    Need
	always  bool // answers while the server does not serve
	heavy   bool // as for a four-letter word
	// changes: the command changes state and is therefore never run by GET
	changes bool
	// write writes the members of the answer but command and error. It returns the error of the
	// answer, if any.
	write func(j *jsonWriter, s *Status, args url.Values) string
}

// fine makes the write function of a command that cannot fail.
func fine(f func(*jsonWriter, *Status)) func(*jsonWriter, *Status, url.Values) string {
	return func(j *jsonWriter, s *Status, _ url.Values) string {
		f(j, s)
		return ""
	}
}

// commandTable is sorted by name, as the list at /commands is.
func (a *Admin) commandTable() []command {
	nothing := fine(func(*jsonWriter, *Status) {})
	return []command{
		{name: "configuration", aliases: []string{"conf", "config"}, write: fine(jsonConfiguration)},
		{name: "connection_stat_reset", aliases: []string{"crst"}, changes: true,
			write: func(*jsonWriter, *Status, url.Values) string {
				a.o.Source.ResetConns()
				return ""
			}},
		{name: "connections", aliases: []string{"cons"}, need: NeedConns, heavy: true,
			write: fine(func(j *jsonWriter, s *Status) { jsonConnections(j, s, false) })},
		{name: "dirs", need: NeedDirs, write: fine(func(j *jsonWriter, s *Status) {
			j.field("datadir_size", s.DataDirSize)
			j.field("logdir_size", s.LogDirSize)
		})},
		{name: "dump", need: NeedSessions | NeedEphemerals, heavy: true, write: fine(jsonDump)},
		{name: "environment", aliases: []string{"env", "envi"}, need: NeedProcess, always: true,
			write: fine(func(j *jsonWriter, s *Status) { jsonPairs(j, environment(s)) })},
		{name: "get_trace_mask", aliases: []string{"gtmk"}, always: true,
			write: fine(func(j *jsonWriter, _ *Status) { j.field("tracemask", a.mask.Load()) })},
		{name: "hash", write: fine(jsonHash)},
		{name: "initial_configuration", aliases: []string{"icfg"}, write: fine(func(j *jsonWriter, s *Status) {
			if s.Config.File == "" {
				j.field("initial_configuration", nil)
			} else {
				j.field("initial_configuration", s.Config.File)
			}
		})},
		{name: "is_read_only", aliases: []string{"isro"}, write: fine(func(j *jsonWriter, s *Status) {
			j.field("read_only", s.Mode == ReadOnly)
		})},
		{name: "last_snapshot", aliases: []string{"lsnp"}, write: fine(jsonLastSnapshot)},
		{name: "leader", aliases: []string{"lead"}, write: jsonLeader},
		{name: "monitor", aliases: []string{"mntr"}, need: NeedMetrics | NeedDirs | NeedProcess, always: true,
			write: fine(jsonMonitor)},
		{name: "observer_connection_stat_reset", aliases: []string{"orst"}, changes: true, write: nothing},
		{name: "observers", aliases: []string{"obsr"}, write: fine(jsonObservers)},
		{name: "ruok", write: nothing},
		{name: "server_stats", aliases: []string{"srvr"}, need: NeedDirs | NeedMetrics,
			write: fine(jsonServerStats)},
		{name: "set_trace_mask", aliases: []string{"stmk"}, always: true, changes: true, write: a.setTraceMask},
		{name: "stat_reset", aliases: []string{"srst"}, changes: true,
			write: func(*jsonWriter, *Status, url.Values) string {
				a.o.Source.ResetStats()
				return ""
			}},
		{name: "stats", aliases: []string{"stat"}, need: NeedDirs | NeedMetrics | NeedConns, heavy: true,
			write: fine(func(j *jsonWriter, s *Status) {
				jsonServerStats(j, s)
				jsonConnections(j, s, true)
			})},
		{name: "system_properties", aliases: []string{"sysp"}, need: NeedProcess, always: true,
			write: fine(func(j *jsonWriter, s *Status) { jsonPairs(j, s.Environment) })},
		{name: "voting_view", write: fine(jsonVotingView)},
		{name: "watch_summary", aliases: []string{"wchs"}, write: fine(func(j *jsonWriter, s *Status) {
			j.field("num_connections", s.WatchConns)
			j.field("num_paths", s.WatchPaths)
			j.field("num_total_watches", s.Watches)
		})},
		{name: "watches", aliases: []string{"wchc"}, need: NeedWatches, heavy: true,
			write: fine(func(j *jsonWriter, s *Status) {
				j.object("session_id_to_watched_paths", func() { jsonSessionPaths(j, s.WatchList) })
			})},
		{name: "watches_by_path", aliases: []string{"wchp"}, need: NeedWatches, heavy: true,
			write: fine(jsonWatchesByPath)},
		{name: "zabstate", always: true, write: fine(jsonZabState)},
	}
}

func (a *Admin) setTraceMask(j *jsonWriter, _ *Status, args url.Values) string {
	mask, err := strconv.ParseInt(args.Get("traceMask"), 10, 64)
	if err != nil {
		return "setTraceMask requires long traceMask argument"
	}
	a.mask.Store(mask)
	j.field("tracemask", mask)
	return ""
}

// runCommand writes the whole answer of a command that was asked for as name.
func (a *Admin) runCommand(j *jsonWriter, c *command, name string, need Need, args url.Values) {
	s := a.o.Source.Status(c.need | need)
	if !s.answers() && !c.always {
		jsonRefusal(j, name, notServing)
		return
	}
	j.beginObject()
	problem := c.write(j, s, args)
	if s.Truncated != "" {
		j.field("truncated", s.Truncated)
	}
	if problem != "" { // as ZooKeeper orders them when a command itself fails
		j.field("error", problem)
		j.field("command", c.name)
	} else {
		j.field("command", c.name)
		j.field("error", nil)
	}
	j.endObject()
}

// jsonRefusal is the answer of a command that was not run.
func jsonRefusal(j *jsonWriter, name, problem string) {
	j.beginObject()
	j.field("command", name)
	j.field("error", problem)
	j.endObject()
}
