package golden

import (
	"regexp"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// member is a line of the member list in /zookeeper/config. The client address
// is there only if the server's configuration has it.
var member = regexp.MustCompile(`^server\.(\d+)=[^:;]+:\d+:\d+:(participant|observer)(;[^:;]+:\d+)?$`)

// version is the last line of the list.
var version = regexp.MustCompile(`^version=[0-9a-f]+$`)

// sameMembers replaces the member list in `got` by the list in `want`, if both lists have the same shape.
// Both are replies to a getData of /zookeeper/config. The lists differ because each server has its own
// addresses.
func sameMembers(got, want []byte) []byte {
	if len(got) < bodyStart || len(want) < bodyStart {
		return got
	}
	g, w := jute.NewDecoder(got[bodyStart:]), jute.NewDecoder(want[bodyStart:])
	gotList, wantList := g.Buffer(), w.Buffer()
	if g.Err() != nil || w.Err() != nil || len(wantList) == 0 || !slices.Equal(shape(gotList), shape(wantList)) {
		return got
	}
	st := g.Stat()
	if g.Err() != nil || int(st.DataLength) != len(gotList) {
		return got
	}
	st.DataLength = int32(len(wantList))
	b, at := jute.BeginFrame(nil)
	b = append(b, got[4:bodyStart]...)
	b = jute.AppendBuffer(b, wantList)
	b = jute.AppendStat(b, &st)
	jute.EndFrame(b, at)
	return b
}

// shape() returns the comparable part of each line of a member list.
func shape(list []byte) []string {
	var lines []string
	for line := range strings.SplitSeq(string(list), "\n") {
		if m := member.FindStringSubmatch(line); m != nil {
			line = m[1] + " " + m[2]
		} else if version.MatchString(line) {
			line = "version"
		}
		lines = append(lines, line)
	}
	return lines
}
