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
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/oracle"
)

// TestAuditLogIsThatOfZooKeeper sends 2,000 random requests to both servers and compares what
// their audit logs say. Times and the ids of sessions differ, and ZooKeeper does not log creates
// with a time to live or with flags that mean nothing, nor a setACL without an ACL.
func TestAuditLogIsThatOfZooKeeper(t *testing.T) {
	cluster.RequireZooKeeper(t)
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "zookeeper"), filepath.Join(dir, "zlockd")
	reference := must.Get(cluster.Start(cluster.Options{Kind: cluster.ZooKeeper, Nodes: 1, Zoo: realConfig,
		Config: []string{"audit.enable=true"}, JVM: []string{"-Xmx512m", "-XX:+UseSerialGC",
			"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.audit=info",
			"-Dorg.slf4j.simpleLogger.logFile=" + theirs}}))(t)
	t.Cleanup(reference.Close)
	subject := zlockd(t, cluster.Options{Dev: true}, "--audit-log", ours)
	r := oracle.NewRunner(reference.Addrs(), subject.Addrs())
	r.Exact = true
	explore(t, r, seed(t), 2000)
	reference.Close()
	subject.Close()
	want, got := audited(t, theirs), audited(t, ours)
	t.Logf("%d requests, %d lines", r.Ops, len(want))
	if len(want) < 200 {
		t.Errorf("ZooKeeper has only %d lines", len(want))
	}
	skipped := 0
	for i, line := range got {
		// ZooKeeper logs a multi that cannot be understood, now and then.
		for len(want) > i && want[i] != line && strings.HasSuffix(want[i], "\toperation=multiOperation\tresult=failure") {
			want = slices.Delete(want, i, i+1)
			skipped++
		}
		if len(want) <= i || want[i] != line {
			t.Fatalf("line %d of %d and %d\nZooKeeper %q\nzlockd    %q\nbefore    %q", i, len(want), len(got),
				want[min(i, len(want)):min(i+4, len(want))], got[i:min(i+4, len(got))], got[max(0, i-3):i])
		}
	}
	if len(want) != len(got) || skipped > r.Ops/50 {
		t.Errorf("%d lines, not %d; %d multis left out", len(got), len(want), skipped)
	}
}

var session = regexp.MustCompile(`session=0x[0-9a-f]+`)

// audited returns the lines of an audit log, masked.
func audited(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for line := range strings.Lines(string(text)) {
		at := strings.Index(line, "session=")
		if at < 0 || !strings.Contains(line, "\tresult=") || strings.Contains(line, "_with_ttl") ||
			strings.Contains(line, "znode_type=unknown") || strings.Contains(line, "\tacl=\t") ||
			strings.Contains(line, "=setAcl\t") && !strings.Contains(line, "\tacl=") {
			continue // start and stop, other lines of ZooKeeper, and kinds of requests that it leaves out
		}
		line = strings.ReplaceAll(line, ":null:", "::") // no id in an ACL
		line = strings.Replace(line, "\tznode=\t", "\t", 1)
		line = session.ReplaceAllStringFunc(line[strings.Index(line, "session="):], func(id string) string {
			if ids[id] == "" {
				ids[id] = fmt.Sprint("session=", len(ids))
			}
			return ids[id]
		})
		line = strings.Map(func(r rune) rune { // Java writes a question mark for what is no text
			if r == utf8.RuneError {
				return '?'
			}
			return r
		}, line)
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	const ended = "\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t"
	for i := 0; i < len(lines); { // sessions end together
		n := i + 1
		for n < len(lines) && strings.Contains(lines[i], ended) && strings.Contains(lines[n], ended) {
			n++
		}
		slices.Sort(lines[i:n])
		i = n
	}
	return lines
}
