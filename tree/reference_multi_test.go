package tree_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// step is one operation of a multi.
type step struct {
	result jute.OpCode // the type of its result
	run    func(*tree.Change) ([]byte, jute.ErrCode)
}

// multi() applies all steps, or none.
func (m *Model) multi(c *tree.Change, d *jute.Decoder, reply []byte) ([]byte, jute.ErrCode, bool) {
	var steps []step
	for {
		h := d.MultiHeader()
		if d.Err() == nil && h.Done {
			break
		}
		peek := *d
		_, path := peek.String()
		s := m.step(d, h.Type)
		if d.Err() != nil || s.run == nil || !path {
			return reply, jute.MarshallingError, false
		}
		steps = append(steps, s)
	}
	m.before = maps.Clone(m.Nodes)
	defer func() { m.before = nil }()
	events := len(c.Events)
	out := reply
	for i, s := range steps {
		body, code := s.run(c)
		if code == jute.OK {
			out = append(jute.AppendMultiHeader(out, s.result, false, jute.OK), body...)
			continue
		}
		m.Nodes = m.before
		c.Events = c.Events[:events]
		if code == jute.MarshallingError {
			return reply, code, false
		}
		out = reply
		for j := range steps {
			e := map[bool]jute.ErrCode{true: jute.OK, false: jute.RuntimeInconsistency}[j < i]
			if j == i {
				e = code
			}
			out = jute.AppendInt(jute.AppendMultiHeader(out, jute.OpError, false, e), int32(e))
		}
		return jute.AppendMultiHeader(out, jute.OpError, true, -1), jute.OK, false
	}
	return jute.AppendMultiHeader(out, jute.OpError, true, -1), jute.OK, true
}

// step() reads one operation. In the result, `run` is nil if the whole multi must be refused.
func (m *Model) step(d *jute.Decoder, op jute.OpCode) step {
	switch op {
	case jute.OpDelete, jute.OpCheck, jute.OpSetData:
		return step{op, m.decode(d, op)}
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
	default:
		return step{}
	}
	r := d.CreateRequest(op)
	s := step{result: jute.OpCreate2}
	switch {
	case r.Flags < 0 || r.Flags > 6:
		return step{}
	case r.Flags >= 5 && op != jute.OpCreateTTL:
		s.run = func(*tree.Change) ([]byte, jute.ErrCode) { return nil, jute.MarshallingError }
		return s
	case r.Flags == 4:
		op = jute.OpCreateContainer
	case r.Flags < 4 && op == jute.OpCreateContainer:
		op = jute.OpCreate2
	case op == jute.OpCreate:
		s.result = op
	}
	s.run = func(c *tree.Change) ([]byte, jute.ErrCode) { return m.create(c, op, r) }
	return s
}

// Quotas have no state but the text in their nodes.

func quotaNode(p, name string) string { return "/zookeeper/quota" + p + "/zookeeper_" + name }

// covering() returns the deepest path with limits at path or above it.
func (m *Model) covering(path string) string {
	for ; path != "/"; path = parent(path) {
		if _, ok := m.Nodes[quotaNode(path, "limits")]; ok {
			return path
		}
	}
	return ""
}

func (m *Model) charge(path string, count, bytes int) {
	stats := quotaNode(m.covering(path), "stats")
	if _, ok := m.Nodes[stats]; ok && stats != quotaNode("", "stats") {
		text := string(m.Nodes[stats].Data)
		m.setStats(stats, field(text, "count")+int64(count), field(text, "bytes")+int64(bytes))
	}
}

func (m *Model) fillStats(path string) {
	of, ok := strings.CutPrefix(path, "/zookeeper/quota/")
	of, ok2 := strings.CutSuffix(of, "/zookeeper_stats")
	if !ok || !ok2 {
		return
	}
	var count, bytes int64
	for p, n := range m.Nodes {
		if p == "/"+of || strings.HasPrefix(p, "/"+of+"/") {
			count, bytes = count+1, bytes+int64(len(n.Data))
		}
	}
	m.setStats(path, count, bytes)
}

func (m *Model) setStats(path string, count, bytes int64) {
	n := m.Nodes[path]
	n.Data = fmt.Appendf(nil, "count=%d,bytes=%d", count, bytes)
	m.Nodes[path] = n
}

func (m *Model) overQuota(c *tree.Change, path string, count, bytes int) bool {
	p := m.covering(path)
	limits, ok := m.Nodes[quotaNode(p, "limits")]
	stats, ok2 := m.Nodes[quotaNode(p, "stats")]
	if c.NoQuota || p == "" || !ok || !ok2 {
		return false
	}
	if m.before != nil {
		if limits.Czxid == c.Zxid || stats.Czxid == c.Zxid {
			return false
		}
		stats = m.before[quotaNode(p, "stats")]
	}
	over := func(limit, used string, more int) bool {
		l := field(string(limits.Data), limit)
		return l >= 0 && more != 0 && field(string(stats.Data), used)+int64(more) > l
	}
	return over("countHardLimit", "count", count) || over("byteHardLimit", "bytes", bytes)
}

// field() returns a number of a quota's text. It returns -1 if the text lacks this number.
func field(text, key string) int64 {
	for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' }) {
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
