package exporter

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

// Lines calls tell() for each line of `mntr`. `name` comes without the prefix zk_. `text` is true for the few
// values that are no numbers.
func Lines(s *report.Status, tell func(name, value string, text bool)) {
	tell("version", s.VersionLine(), true)
	if s.Answers() {
		tell("server_state", string(s.Mode), true)
		if p := peerStates[s.Mode]; p != "" {
			tell("peer_state", p, true)
		}
	}
	for _, g := range gauges(s) {
		if g.float {
			tell(g.name, report.Decimal(g.value), false)
		} else {
			tell(g.name, report.Short(g.value), false)
		}
	}
	for _, name := range counterNames {
		tell(name, strconv.FormatInt(s.Counters[name], 10), false)
	}
	for _, name := range basicNames {
		eachOf(name, s.Summaries[name], false, tell)
	}
	for _, name := range advancedNames {
		eachOf(name, s.Summaries[name], true, tell)
	}
	families := keyed(s)
	for _, family := range slices.Sorted(maps.Keys(families)) {
		keyed := families[family]
		for _, key := range slices.Sorted(maps.Keys(keyed)) {
			eachOf(plain(key)+"_"+family, keyed[key], keyedNames[family], tell)
		}
	}
	for _, x := range s.Extra {
		if len(x.Labels) == 0 && x.Histogram == nil {
			tell("zlockd_"+plain(x.Name), report.Short(x.Value), false)
		}
	}
}

// eachOf calls tell() for each line of a summary. Programs that read the lines expect whole numbers for the
// minimum, the maximum and the sum, so fractions are cut off.
func eachOf(name string, v metrics.Summary, advanced bool, tell func(name, value string, text bool)) {
	whole := func(f float64) string { return strconv.FormatInt(int64(f), 10) }
	tell("avg_"+name, report.Decimal(v.Avg()), false)
	tell("min_"+name, whole(v.Min), false)
	tell("max_"+name, whole(v.Max), false)
	tell("cnt_"+name, strconv.FormatInt(v.Count, 10), false)
	tell("sum_"+name, whole(v.Sum), false)
	if !advanced {
		return
	}
	tell("p50_"+name, report.Short(v.P50), false)
	tell("p95_"+name, report.Short(v.P95), false)
	tell("p99_"+name, report.Short(v.P99), false)
	tell("p999_"+name, report.Short(v.P999), false)
}

// peerStates are ZooKeeper's names for what a server does in its cluster.
var peerStates = map[report.Mode]string{report.Leader: "leading - broadcast",
	report.Follower: "following - broadcast", report.Observer: "observing - broadcast"}

// plain replaces characters that a name in `mntr` must not have, because programs split its lines at blanks
// and match names by simple expressions.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
}
