//go:build stock

package oracle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/oracle"
)

// Both servers get 2,000 random requests, and their audit logs agree except for times and session ids.
// ZooKeeper does not log creates with a time to live or with senseless flags, a setACL without an ACL, or
// failed logins. It logs a reconfig that is not enabled as a success.
func TestAuditLogIsThatOfZooKeeper(t *testing.T) {
	cluster.RequireZooKeeper(t)
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "zookeeper"), filepath.Join(dir, "zlockd")
	reference := must.Get(cluster.Start(cluster.Options{Kind: cluster.ZooKeeper, Nodes: 1,
		Config: append(slices.Clone(realConfig), "audit.enable=true"), JVM: []string{"-Xmx512m", "-XX:+UseSerialGC",
			"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.audit=info",
			"-Dorg.slf4j.simpleLogger.logFile=" + theirs}}))(t)
	t.Cleanup(reference.Close)
	subject := zlockd(t, cluster.Options{Dev: true}, "--audit-log", ours)
	r := oracle.NewRunner(reference.Addrs(), subject.Addrs())
	r.Exact = true
	explore(t, r, seed(t), 2000)
	reference.Close()
	subject.Servers[0].Stop() // when it stops, the server writes the lines that wait
	// The lines of ended sessions come last, so that the order of the other lines can be compared.
	want, got := endsLast(audited(t, theirs)), endsLast(audited(t, ours))
	t.Logf("%d requests, %d lines", r.Ops, len(want))
	expect.That(t, len(want) >= 200, "ZooKeeper has only %d lines", len(want))
	// If a multi cannot be decoded, sometimes only one of the servers logs it. Lines that are only in one log
	// for this reason are left out.
	multi := func(lines []string, i int) bool {
		return i < len(lines) && strings.HasSuffix(lines[i], "\toperation=multiOperation\tresult=failure")
	}
	// Only zlockd logs a create whose path is not text and whose rest cannot be decoded. Such lines are left
	// out, too.
	broken := func(i int) bool {
		return i < len(got) && strings.Contains(got[i], "\toperation=create\tznode=/") &&
			strings.Contains(got[i], "?") && strings.HasSuffix(got[i], "\tresult=failure")
	}
	skipped := 0
	for i := 0; i < max(len(want), len(got)); i++ {
		for ; i >= len(want) || i >= len(got) || want[i] != got[i]; skipped++ {
			if multi(want, i) {
				want = slices.Delete(want, i, i+1)
			} else if multi(got, i) || broken(i) {
				got = slices.Delete(got, i, i+1)
			} else {
				break
			}
		}
		if i >= len(want) && i >= len(got) {
			break
		}
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("line %d of %d and %d\nZooKeeper %q\nzlockd    %q\nbefore    %q", i, len(want), len(got),
				want[min(i, len(want)):min(i+4, len(want))], got[min(i, len(got)):min(i+4, len(got))],
				got[max(0, i-3):min(i, len(got))])
		}
	}
	expect.That(t, skipped <= r.Ops/50, "%d lines left out", skipped)
}

var (
	session = regexp.MustCompile(`session=0x[0-9a-f]+`)
	noText  = regexp.MustCompile(`\?+`)
)

// audited() returns the masked lines of an audit log.
func audited(t *testing.T, file string) (lines []string) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	ids := map[string]string{}
	for line := range strings.Lines(string(text)) {
		at := strings.Index(line, "session=")
		if at < 0 || !strings.Contains(line, "\tresult=") || strings.Contains(line, "_with_ttl") ||
			strings.Contains(line, "znode_type=unknown") || strings.Contains(line, "\tacl=\t") ||
			strings.Contains(line, "=setAcl\t") && !strings.Contains(line, "\tacl=") ||
			strings.Contains(line, "\toperation=login\t") || strings.Contains(line, "\toperation=reconfig\t") {
			continue // start and stop, other lines, and requests that ZooKeeper leaves out
		}
		line = strings.ReplaceAll(line, ":null:", "::") // a missing id in an ACL is null or empty
		line = session.ReplaceAllStringFunc(line[strings.Index(line, "session="):], func(id string) string {
			if ids[id] == "" && strings.Contains(line, "=multiOperation\t") {
				return "session=?" // the other server may have no such line, so do not give this session a number
			}
			if ids[id] == "" {
				ids[id] = fmt.Sprint("session=", len(ids))
			}
			return ids[id]
		})
		line = strings.Map(func(r rune) rune {
			switch {
			case r == utf8.RuneError:
				return '?' // Java writes ? for bytes that are not text
			case r < ' ' && r != '\t', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029:
				return -1 // leave out control characters, which only ZooKeeper writes
			}
			return r
		}, line)
		line = noText.ReplaceAllString(line, "?") // the servers write different numbers of ? for the same bytes
		line = strings.Replace(line, "\tznode=\t", "\t", 1)
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	const ended = "\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t"
	for i := 0; i < len(lines); { // sort the lines of sessions that end together
		n := i + 1
		for n < len(lines) && strings.Contains(lines[i], ended) && strings.Contains(lines[n], ended) {
			n++
		}
		slices.Sort(lines[i:n])
		i = n
	}
	return lines
}

// endsLast moves the lines of ended sessions to the end and sorts them, because sessions that fall silent
// together may end in any order.
func endsLast(lines []string) []string {
	end := func(line string) bool { return strings.Contains(line, "operation=ephemeralZNodeDeletion") }
	ends := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !end(line) })
	slices.Sort(ends)
	return append(slices.DeleteFunc(lines, end), ends...)
}
