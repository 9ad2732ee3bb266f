package tree

import (
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// Quotas live in ordinary nodes: for a path P the limits stand in /zookeeper/quota/P/zookeeper_limits, whose
// existence activates the quota, and the counts in /zookeeper/quota/P/zookeeper_stats. The text of both is
// the only state there is; the tree only remembers how many quotas are activated. A quota on / itself does
// not count anything, as in ZooKeeper.
const (
	limitsName = "zookeeper_limits"
	statsName  = "zookeeper_stats"
)

// quotaOf returns the path whose quota the node at path holds. It returns "" if the node holds no quota.
func quotaOf(path string) string {
	p, ok := strings.CutPrefix(path, quotaPath)
	if !ok || p == "" || p[0] != '/' {
		return ""
	}
	return p
}

// covering() returns the nodes of the quota that counts path: the activated quota of path itself, or of the
// deepest node above path that has one. Without such a quota both are nil.
func (t *Tree) covering(c *Change, path string) (limits, stats *nodes.Node) {
	if t.quotas == 0 || path == "" {
		return nil, nil
	}
	n := t.At(quotaPath)
	for rest, found := path[1:], true; found; {
		var name string
		name, rest, found = strings.Cut(rest, "/")
		c.spend(1)
		if n = t.Below(n, name); n == nil {
			break
		}
		if l := t.Below(n, limitsName); l != nil {
			limits, stats = l, t.Below(n, statsName)
		}
	}
	return limits, stats
}

// charge() adds to the counts of the quota that covers path. The counts change in place: no version, no zxid
// and no event changes with them.
func (t *Tree) charge(c *Change, path string, count, bytes int64) {
	if _, n := t.covering(c, path); n != nil {
		c.spend(bounds.QuotaSteps)
		used := t.quotaTexts[n]
		t.setStats(n, used.count+count, used.bytes+bytes)
	}
}

// fillStats writes the true counts into a new node, if the node holds the counts of a quota.
func (t *Tree) fillStats(n *nodes.Node) {
	if n.Name != statsName {
		return
	}
	p := quotaOf(nodes.PathOf(n.Parent))
	if p == "" {
		return
	}
	var count, bytes int64
	if of := t.At(p); of != nil {
		count, bytes = 1, int64(len(of.Data))
		if of.Dir != nil {
			count += int64(of.Dir.Count)
			bytes += of.Dir.Bytes
		}
	}
	t.setStats(n, count, bytes)
}

func (t *Tree) setStats(n *nodes.Node, count, bytes int64) {
	t.snap.keep(n)
	t.undo.writing(n)
	t.undo.counting(t, n)
	b := append(t.buf[:0], "count="...)
	b = strconv.AppendInt(b, count, 10)
	b = append(b, ",bytes="...)
	b = strconv.AppendInt(b, bytes, 10)
	t.buf = b
	t.setData(n, string(b), false)
	t.hash.Text(n.Data)
}

// overQuota reports whether adding these numbers of nodes and bytes at path would exceed a hard limit. Within
// a multi it compares with the counts before the multi.
func (t *Tree) overQuota(c *Change, path string, count, bytes int64) bool {
	if c.NoQuota {
		return false
	}
	limits, stats := t.covering(c, path)
	if limits == nil || stats == nil {
		return false
	}
	if t.undo != nil && (limits.Czxid == c.Zxid || stats.Czxid == c.Zxid) {
		return false // the multi has made this quota itself, so the quota does not limit it
	}
	used, most := t.undo.before(t, stats), t.quotaTexts[limits]
	return exceeds(most.countLimit, used.count, count) || exceeds(most.byteLimit, used.bytes, bytes)
}

func exceeds(limit, used, more int64) bool { return limit > -1 && more != 0 && used+more > limit }

func hasQuotaText(n *nodes.Node) bool { return n.Name == limitsName || n.Name == statsName }

// readQuotaText reads a text like "count=1,bytes=-1=;byteHardLimit=5". Of two fields with the same name, the
// first counts. A value is -1 if its field is missing or holds no number; as a limit, -1 means no limit.
func readQuotaText(text string) quotaText {
	names := []string{"count", "bytes", "countHardLimit", "byteHardLimit"}
	values := [...]int64{-1, -1, -1, -1}
	for field := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		if len(field) < len("count") { // too short for a name; a megabyte may hold very many such fields
			continue
		}
		name, v, _ := strings.Cut(field, "=")
		at := slices.Index(names, name)
		if at < 0 {
			continue
		}
		names[at] = "," // so that a later field with this name is not found
		if n, err := strconv.ParseInt(strings.TrimRight(v, "="), 10, 64); err == nil {
			values[at] = n
		}
	}
	return quotaText{values[0], values[1], values[2], values[3]}
}

// counting() records the counts that a multi is about to change.
func (u *undoLog) counting(t *Tree, n *nodes.Node) {
	if u == nil {
		return
	}
	if u.counted == nil {
		u.counted = map[*nodes.Node]quotaText{}
	}
	if _, ok := u.counted[n]; !ok {
		u.counted[n] = t.quotaTexts[n]
	}
}

// before() returns the counts in n as they were before the multi.
func (u *undoLog) before(t *Tree, n *nodes.Node) quotaText {
	if u != nil {
		if text, ok := u.counted[n]; ok {
			return text
		}
	}
	return t.quotaTexts[n]
}
