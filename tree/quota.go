package tree

import (
	"strconv"
	"strings"
)

// Quotas live in ordinary nodes: for a path P the limits stand in
// /zookeeper/quota/P/zookeeper_limits, whose existence activates the quota, and the counts in
// /zookeeper/quota/P/zookeeper_stats. The text of both is the only state there is; the tree only
// remembers how many quotas are activated. A quota on / itself does not count anything, as in the
// reference.
const (
	limitsName = "zookeeper_limits"
	statsName  = "zookeeper_stats"
)

// quotaOf returns the path whose quota the node at path holds, or "".
func quotaOf(path string) string {
	p, ok := strings.CutPrefix(path, quotaPath)
	if !ok || p == "" || p[0] != '/' {
		return ""
	}
	return p
}

// covering returns the nodes of the quota that counts path: the activated one of
// path or of the deepest node above it. Without one, both are nil.
func (t *Tree) covering(c *Change, path string) (limits, stats *node) {
	if t.quotas == 0 || path == "" {
		return nil, nil
	}
	n := t.find(quotaPath)
	for rest, found := path[1:], true; found; {
		var name string
		name, rest, found = strings.Cut(rest, "/")
		c.spend(1)
		if n = t.child(n, name); n == nil {
			break
		}
		if l := t.child(n, limitsName); l != nil {
			limits, stats = l, t.child(n, statsName)
		}
	}
	return limits, stats
}

// charge adds to the counts of the quota that covers path. They change in
// place: no version, no zxid, no event.
func (t *Tree) charge(c *Change, path string, count, bytes int64) {
	if _, n := t.covering(c, path); n != nil {
		c.spend(quotaSteps)
		t.setStats(n, quotaField(n.data, "count")+count, quotaField(n.data, "bytes")+bytes)
	}
}

// fillStats writes the true counts into a new node, if the node holds the counts of a quota.
func (t *Tree) fillStats(n *node) {
	if n.name != statsName {
		return
	}
	p := quotaOf(pathOf(n.parent))
	if p == "" {
		return
	}
	var count, bytes int64
	if of := t.find(p); of != nil {
		count, bytes = 1, int64(len(of.data))
		if of.dir != nil {
			count += int64(of.dir.count)
			bytes += of.dir.bytes
		}
	}
	t.setStats(n, count, bytes)
}

func (t *Tree) setStats(n *node, count, bytes int64) {
	t.snap.keep(n)
	t.undo.writing(n)
	t.undo.counting(n)
	b := append(t.buf[:0], "count="...)
	b = strconv.AppendInt(b, count, 10)
	b = append(b, ",bytes="...)
	b = strconv.AppendInt(b, bytes, 10)
	t.buf = b
	t.setData(n, string(b), false)
	t.hash.string(n.data)
}

// overQuota reports whether more nodes and bytes at path would break a hard limit. Inside a multi
// it counts from before the multi.
func (t *Tree) overQuota(c *Change, path string, count, bytes int64) bool {
	if c.NoQuota {
		return false
	}
	limits, stats := t.covering(c, path)
	if limits == nil || stats == nil {
		return false
	}
	if t.undo != nil && (limits.czxid == c.Zxid || stats.czxid == c.Zxid) {
		return false // this very multi made the quota
	}
	used := t.undo.before(stats)
	return exceeds(quotaField(limits.data, "countHardLimit"), quotaField(used, "count"), count) ||
		exceeds(quotaField(limits.data, "byteHardLimit"), quotaField(used, "bytes"), bytes)
}

func exceeds(limit, used, more int64) bool { return limit > -1 && more != 0 && used+more > limit }

// quotaField reads a number from a text like "count=1,bytes=-1=;byteHardLimit=5". It returns -1 if
// there is no such number; as a limit, -1 means no limit.
func quotaField(text, key string) int64 {
	for text != "" {
		i := strings.IndexAny(text, ",;")
		pair := text
		if i >= 0 {
			pair, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		k, v, _ := strings.Cut(pair, "=")
		if k != key {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimRight(v, "="), 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	return -1
}

// counting notes the counts that a multi is about to change.
func (u *undoLog) counting(n *node) {
	if u == nil {
		return
	}
	if u.counted == nil {
		u.counted = map[*node]string{}
	}
	if _, ok := u.counted[n]; !ok {
		u.counted[n] = n.data
	}
}

// before returns the counts in n as they were before the multi.
func (u *undoLog) before(n *node) string {
	if u != nil {
		if text, ok := u.counted[n]; ok {
			return text
		}
	}
	return n.data
}
