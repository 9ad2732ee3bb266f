package history

import (
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

// hist is a history written by hand. Connection n belongs to session n unless attach() was called for it. The
// requests of a history do not overlap in time.
type hist struct {
	records []Record
	now     time.Duration
	seq     int
	session map[int]int64
	ids     map[int][]jute.ID
}

func (h *hist) attach(conn int, session int64, fresh bool, last int64) {
	h.now += 10
	h.session[conn] = session
	h.records = append(h.records, Record{Connect: &Connect{"c", conn, session, fresh, last, 0, h.now,
		h.now + 1, h.ids[conn]}})
}

// do() adds a request that was answered.
func (h *hist) do(conn int, zxid int64, o Op) *Op {
	h.now += 10
	h.seq++
	if _, ok := h.session[conn]; !ok {
		h.attach(conn, int64(conn), true, 0)
	}
	o.Client, o.Conn, o.Session, o.Seq = "c", conn, h.session[conn], h.seq
	o.Start, o.End, o.Zxid = h.now, h.now+1, zxid
	h.records = append(h.records, Record{Op: &o})
	return &o
}

// lost() adds a request whose answer never came.
func (h *hist) lost(conn int, o Op) {
	p := h.do(conn, 0, o)
	p.Unknown, p.End = true, 0
}

func (h *hist) event(conn int, zxid int64, t jute.EventType, path string) {
	h.now++
	h.records = append(h.records, Record{Event: &Event{conn, h.now, zxid, t, path}})
}

func (h *hist) swapLast() {
	n := len(h.records)
	h.records[n-1], h.records[n-2] = h.records[n-2], h.records[n-1]
}

// backup() adds a backup with the root and nodes of one byte, whose zxids are 5, 6 and so on.
func (h *hist) backup(zxid int64, paths ...string) *Backup {
	h.now += 10
	kids := int32(len(paths))
	root := jute.Stat{Pzxid: 4 + int64(kids), Cversion: kids - 1, NumChildren: kids + 1}
	if zxid == 6 && len(paths) == 0 {
		root.Pzxid, root.Cversion = 6, 1
	}
	b := &Backup{Server: "1", Start: h.now, End: h.now + 1, Zxid: zxid,
		Nodes: []BackupNode{{Path: "/", Stat: root}}}
	for i, path := range paths {
		z := int64(5 + i)
		b.Nodes = append(b.Nodes, BackupNode{Path: path, Data: []byte("d"),
			Stat: jute.Stat{Czxid: z, Mzxid: z, Pzxid: z, DataLength: 1}})
	}
	h.records = append(h.records, Record{Backup: b})
	return b
}

func create(path string, flags int32) Op {
	return Op{Step: Step{Op: jute.OpCreate, Path: path, Created: path, Data: []byte("d"), Flags: flags}}
}

// withACL() gives a request an ACL that allows one client everything.
func withACL(o Op, name string) Op {
	o.ACL = []jute.ACL{{Perms: jute.PermAll, ID: user(name)}}
	return o
}

func createSeq(prefix, created string) Op {
	o := create(prefix, 2)
	o.Created = created
	return o
}

func remove(path string) Op { return Op{Step: Step{Op: jute.OpDelete, Path: path, Version: -1}} }

func set(path, data string) Op {
	return Op{Step: Step{Op: jute.OpSetData, Path: path, Data: []byte(data), Version: -1}}
}

func get(path, data string) Op {
	return Op{Step: Step{Op: jute.OpGetData, Path: path}, Value: []byte(data)}
}

func list(path string, names ...string) Op {
	return Op{Step: Step{Op: jute.OpGetChildren2, Path: path}, Children: names}
}

func exists(path string, code jute.ErrCode) Op {
	return Op{Step: Step{Op: jute.OpExists, Path: path, Code: code}}
}

func refused(o Op, code jute.ErrCode) Op {
	o.Code, o.Created = code, ""
	return o
}

func watching(o Op) Op {
	o.Watch = true
	return o
}

func multi(steps ...Op) Op {
	o := Op{Step: Step{Op: jute.OpMulti}}
	for _, s := range steps {
		o.Steps = append(o.Steps, s.Step)
	}
	return o
}

func simple(op jute.OpCode) Op { return Op{Step: Step{Op: op}} }

func withStat(o Op, st jute.Stat) Op {
	o.Stat = &st
	return o
}

// pick() returns `bug` if the bug is planted, and `right` otherwise.
func pick[T any](wrong bool, bug, right T) T {
	if wrong {
		return bug
	}
	return right
}

// For each rule, histories that are correct become wrong by one planted bug, and the checker finds it.
func TestPlantedBugsAreFound(t *testing.T) {
	const ok = jute.OK
	stat := func(z, mz, pz int64, version, kids int32) jute.Stat {
		return jute.Stat{Czxid: z, Mzxid: mz, Pzxid: pz, Version: version, Cversion: kids, NumChildren: kids,
			DataLength: 1}
	}
	for _, c := range []struct {
		name  string
		rules []string
		run   func(h *hist, bug bool)
	}{
		{"write ordered before an earlier one", []string{"G1"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, pick(bug, int64(4), 6), create("/b", 0))
		}},
		{"two writes with one zxid", []string{"G1"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, pick(bug, int64(5), 6), create("/b", 0)).Start = 0
		}},
		{"refusal from an old state", []string{"G1"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, remove("/a"))
			h.do(2, pick(bug, int64(5), 6), refused(create("/a", 0), pick(bug, jute.NodeExists, jute.BadArguments)))
		}},
		{"backup older than an answer before it", []string{"G7"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, remove("/a"))
			h.backup(pick(bug, int64(5), 6), pick(bug, []string{"/a"}, nil)...)
		}},
		{"backup that lacks a node", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			h.backup(6, pick(bug, []string{"/b"}, []string{"/a", "/b"})...)
		}},
		{"backup with a later node", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.backup(5, pick(bug, []string{"/a", "/b"}, []string{"/a"})...)
			h.do(1, 6, create("/b", 0))
		}},
		{"backup with other data", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, set("/a", "e"))
			b := h.backup(6, "/a")
			b.Nodes[1].Stat.Mzxid, b.Nodes[1].Stat.Version = 6, 1
			b.Nodes[1].Data = []byte(pick(bug, "d", "e"))
		}},
		{"read that the ACL forbids", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, withACL(create("/a", 0), pick(bug, "a", "b")))
			h.do(2, 6, get("/a", "d"))
		}},
		{"read refused though the ACL allows it", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, withACL(create("/a", 0), pick(bug, "b", "a")))
			h.do(2, 6, refused(get("/a", ""), jute.NoAuth))
		}},
		{"child created under a foreign ACL", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, withACL(Op{Step: Step{Op: jute.OpSetACL, Path: "/a", Version: -1}}, pick(bug, "a", "b")))
			h.do(2, 7, create("/a/x", 0))
		}},
		{"delete refused though the parent allows it", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, withACL(create("/a/x", 0), "a"))
			h.do(2, 7, refused(remove("/a/x"), pick(bug, jute.NoAuth, jute.BadArguments)))
		}},
		{"older ACL read", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, withACL(Op{Step: Step{Op: jute.OpSetACL, Path: "/a", Version: -1}}, "b"))
			h.do(2, 7, withACL(Op{Step: Step{Op: jute.OpGetACL, Path: "/a"}}, pick(bug, "a", "b")))
		}},
		{"hash of a password shown", []string{"G6"}, func(h *hist, bug bool) {
			foreign := withACL(create("/a", 0), "a")
			foreign.ACL = append(foreign.ACL, jute.ACL{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID})
			h.do(1, 5, foreign)
			read := Op{Step: Step{Op: jute.OpGetACL, Path: "/a", ACL: slices.Clone(foreign.ACL)}}
			read.ACL[0].ID.ID = pick(bug, "a:hash", "a:x")
			h.do(2, 6, read)
		}},
		{"event of a node that the client may not read", []string{"G16"}, func(h *hist, bug bool) {
			h.do(2, 5, watching(exists("/a", jute.NoNode)))
			h.do(1, 6, withACL(create("/a", 0), pick(bug, "a", "b")))
			h.event(2, 6, jute.EventCreated, "/a")
		}},
		{"event kept from a client that may read", []string{"G17"}, func(h *hist, bug bool) {
			h.do(2, 5, watching(exists("/a", jute.NoNode)))
			h.do(1, 6, withACL(create("/a", 0), pick(bug, "b", "a")))
			h.do(2, 7, simple(jute.OpPing))
		}},
		{"backup with another ACL", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, withACL(create("/a", 0), "a"))
			h.backup(5, "/a").Nodes[1].ACL = withACL(create("", 0), pick(bug, "b", "a")).ACL
		}},
		{"acknowledged create lost", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 7, exists("/a", pick(bug, jute.NoNode, ok)))
		}},
		{"acknowledged set lost", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, set("/a", "e"))
			h.do(2, 8, get("/a", pick(bug, "d", "e")))
		}},
		{"write without reply took effect twice", []string{"G3"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/q", 0))
			h.lost(2, createSeq("/q/n-", ""))
			h.do(1, 7, withStat(exists("/q/n-0000000000", ok), stat(6, 6, 6, 0, 0)))
			if bug {
				h.do(1, 8, withStat(exists("/q/n-0000000001", ok), stat(8, 8, 8, 0, 0)))
			}
		}},
		{"set without reply took effect twice", []string{"G6", "G3"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.lost(2, set("/a", "e"))
			h.do(1, 9, withStat(set("/a", "f"), stat(5, 9, 5, pick(bug, int32(3), 2), 0)))
		}},
		{"write without reply took effect too late", []string{"G3"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.lost(2, set("/a", "e"))
			h.attach(3, 2, false, 0)
			h.do(3, pick(bug, int64(5), 6), simple(jute.OpSync))
			h.do(1, 7, withStat(get("/a", "e"), stat(5, 6, 5, 1, 0)))
		}},
		{"change nobody asked for", []string{"G3"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 7, withStat(exists("/a", ok), stat(5, pick(bug, int64(6), 5), 5, pick(bug, int32(1), 0), 0)))
		}},
		{"delete nobody asked for", []string{"G3", "G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(exists("/a", ok)))
			if bug {
				h.event(2, 6, jute.EventDeleted, "/a")
			}
		}},
		{"zxid falls on a connection", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			h.do(1, pick(bug, int64(5), 6), exists("/a", ok))
		}},
		{"zxid of a ping below that of a write before it", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			h.do(1, pick(bug, int64(5), 6), simple(jute.OpPing))
		}},
		{"zxid falls behind that of a ping", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 6, create("/b", 0))
			h.do(1, 6, simple(jute.OpPing))
			h.do(1, pick(bug, int64(5), 6), exists("/a", ok))
		}},
		{"a write's answer below its own zxid", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, pick(bug, int64(6), 7), withStat(set("/a", "e"), stat(5, 7, 5, 1, 0)))
		}},
		{"zxid falls across servers", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			h.attach(2, 1, false, 0)
			h.do(2, pick(bug, int64(5), 6), exists("/a", ok))
		}},
		{"server behind what the client had seen", []string{"G4"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.attach(2, 2, true, pick(bug, int64(7), 5))
			h.do(2, 5, exists("/a", ok))
		}},
		{"replies out of order", []string{"G5"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 5, exists("/a", ok))
			h.do(1, 5, exists("/a", ok))
			if bug {
				h.swapLast()
			}
		}},
		{"wrong version", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, withStat(exists("/a", ok), stat(5, 5, 5, pick(bug, int32(1), 0), 0)))
		}},
		{"wrong pzxid", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/a/x", 0))
			h.do(2, 6, withStat(exists("/a", ok), stat(5, 5, pick(bug, int64(5), 6), 0, 1)))
		}},
		{"pzxid missed a deletion", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/a/x", 0))
			h.do(1, 7, remove("/a/x"))
			st := stat(5, 5, pick(bug, int64(6), 7), 0, 0)
			st.Cversion = 2
			h.do(2, 8, withStat(exists("/a", ok), st))
		}},
		{"wrong cversion", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/a/x", 0))
			st := stat(5, 5, 6, 0, 1)
			st.Cversion = pick(bug, int32(3), 1)
			h.do(2, 6, withStat(exists("/a", ok), st))
		}},
		{"child missing from a list", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/a/x", 0))
			h.do(1, 7, create("/a/y", 0))
			h.do(2, 7, pick(bug, list("/a", "y"), list("/a", "x", "y")))
		}},
		{"child of the future in a list", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 7, create("/a/x", 0))
			h.do(2, pick(bug, int64(6), 7), list("/a", "x"))
		}},
		{"refused without reason", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			o := set("/a", "e")
			o.Version = pick(bug, int32(0), 1)
			h.do(1, 5, refused(o, jute.BadVersion))
		}},
		{"created twice", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, pick(bug, create("/a", 0), create("/b", 0)))
		}},
		{"deleted with children", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/a/x", 0))
			h.do(1, 7, pick(bug, remove("/a"), remove("/a/x")))
		}},
		{"wrong version accepted", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, set("/a", "e"))
			o := set("/a", "f")
			o.Version = pick(bug, int32(0), 1)
			h.do(1, 7, o)
		}},
		{"sync missed a write", []string{"G7"}, func(h *hist, bug bool) {
			h.do(2, 4, create("/z", 0))
			h.do(1, 5, create("/a", 0))
			h.do(2, pick(bug, int64(4), 5), simple(jute.OpSync))
		}},
		{"half a multi", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, multi(create("/a", 0), create("/b", 0)))
			h.do(2, 5, pick(bug, list("/", "zookeeper", "a"), list("/", "zookeeper", "a", "b")))
		}},
		{"failed multi left something", []string{"G6"}, func(h *hist, bug bool) {
			m := multi(create("/a", 0), refused(remove("/none"), jute.NoNode))
			m.Code = jute.NoNode
			h.do(1, 5, m)
			h.do(2, 5, exists("/a", pick(bug, ok, jute.NoNode)))
		}},
		{"servers with different digests", []string{"G9"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.records = append(h.records, Record{Digest: &Digest{"1", 5, 7}}, Record{
				Digest: &Digest{"2", 5, pick(bug, uint64(8), 7)}})
		}},
		{"ephemeral outlives its session", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.do(1, 6, simple(jute.OpCloseSession))
			h.do(2, 6, exists("/e", pick(bug, ok, jute.NoNode)))
		}},
		{"ephemeral outlives an expired session", []string{"G12"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.records = append(h.records, Record{Expired: &Expired{1, h.now + 5}})
			h.do(2, 8, create("/z", 0))
			h.do(2, 8, exists("/e", pick(bug, ok, jute.NoNode)))
		}},
		{"node in the place of an expired session's", []string{"G12"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			if !bug { // this write may have made another node in the place of the first
				h.lost(3, create("/e", 0))
			}
			h.records = append(h.records, Record{Expired: &Expired{1, h.now + 5}})
			h.do(2, 8, create("/z", 0))
			h.do(2, 9, remove("/e"))
		}},
		{"one ephemeral outlives another of its session", []string{"G12", "G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.do(1, 6, create("/f", 1))
			h.do(2, 8, pick(bug, list("/", "zookeeper", "f"), list("/", "zookeeper")))
		}},
		{"lost multi that sets after others", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			if !bug {
				h.lost(2, set("/a", "x"))
			}
			h.lost(3, multi(set("/b", "y"), set("/a", "z")))
			h.do(1, 9, withStat(get("/b", "y"), stat(6, 8, 6, 1, 0)))
			h.do(1, 9, withStat(get("/a", "z"), stat(5, 8, 5, 2, 0)))
		}},
		{"lost multi that creates and sets", []string{"G3", "G6"}, func(h *hist, bug bool) {
			h.lost(2, create("/a", 0))
			h.lost(3, multi(create("/a", 0), set("/a", "x")))
			h.do(1, 5, create("/z", 0))
			h.do(1, 5, withStat(get("/a", pick(bug, "d", "x")), stat(4, 4, 4, 1, 0)))
		}},
		{"ephemeral of a live session gone", []string{"G12"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.do(2, 6, exists("/e", pick(bug, jute.NoNode, ok)))
			h.do(1, 7, create("/z", 0))
		}},
		{"some ephemerals outlive the rest", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.do(1, 6, create("/f", 1))
			h.do(2, 8, exists("/e", jute.NoNode))
			h.do(2, 9, exists("/f", pick(bug, ok, jute.NoNode)))
		}},
		{"node replaced by one that went with its session", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.attach(3, 3, true, 5)
			h.lost(2, remove("/a"))
			if !bug {
				h.lost(3, create("/a", 1))
			}
			h.attach(4, 2, false, 5)
			h.do(4, 7, list("/", "zookeeper", "a")) // session 2 is back, so its delete cannot arrive any more
			h.do(1, 8, create("/z", 0))
			h.do(1, 9, exists("/a", jute.NoNode))
		}},
		{"child of a node replaced by an ephemeral one", []string{"G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.lost(2, remove("/a"))
			if !bug {
				h.lost(3, create("/a", 1))
			}
			h.do(1, 9, refused(create("/a/x", 0), jute.NoChildrenForEphemerals))
		}},
		{"session expired too early", []string{"G10"}, func(h *hist, bug bool) {
			h.attach(1, 1, true, 0)
			h.records[0].Connect.Timeout = 4 * time.Second
			h.do(1, 5, create("/a", 0))
			h.now += pick(bug, 3*time.Second, 5*time.Second)
			h.records = append(h.records, Record{Expired: &Expired{1, h.now}})
		}},
		{"session's node that may have been deleted before", []string{"G17"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			if !bug {
				h.lost(3, remove("/e"))
			}
			h.attach(2, 2, true, 6)
			h.do(2, 6, Op{Step: Step{Op: jute.OpAddWatch, Path: "/e"}})
			h.do(1, 7, simple(jute.OpCloseSession))
			h.do(2, 7, exists("/e", jute.NoNode))
		}},
		{"expired session is answered", []string{"G12"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.records = append(h.records, Record{Expired: &Expired{1, h.now + 5}})
			h.do(pick(bug, 1, 2), 5, exists("/a", ok))
		}},
		{"session closed and alive", []string{"G12"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, simple(jute.OpCloseSession))
			h.attach(3, pick(bug, int64(1), 3), false, 0)
			h.do(3, 7, exists("/a", ok))
		}},
		{"session id given twice", []string{"G14"}, func(h *hist, bug bool) {
			h.attach(1, 77, true, 0)
			h.attach(2, pick(bug, int64(77), 78), true, 0)
		}},
		{"event after the reply that shows the change", []string{"G15"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(exists("/a", ok)))
			h.do(1, 6, set("/a", "e"))
			h.event(2, 6, jute.EventDataChanged, "/a")
			h.do(2, 6, get("/a", "e"))
			if bug {
				h.swapLast()
			}
		}},
		{"events out of order", []string{"G16"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(1, 6, create("/b", 0))
			h.do(2, 6, watching(exists("/a", ok)))
			h.do(2, 6, watching(exists("/b", ok)))
			h.do(1, 7, set("/a", "e"))
			h.do(1, 8, set("/b", "e"))
			h.event(2, 7, jute.EventDataChanged, "/a")
			h.event(2, 8, jute.EventDataChanged, "/b")
			if bug {
				h.swapLast()
			}
		}},
		{"event without a watch", []string{"G16"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, pick(bug, exists("/a", ok), watching(exists("/a", ok))))
			h.do(1, 6, set("/a", "e"))
			h.event(2, 6, jute.EventDataChanged, "/a")
		}},
		{"one-shot watch fired twice", []string{"G16"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(exists("/a", ok)))
			h.do(1, 6, set("/a", "e"))
			h.do(1, 7, set("/a", "f"))
			h.event(2, 6, jute.EventDataChanged, "/a")
			if bug {
				h.event(2, 7, jute.EventDataChanged, "/a")
			}
		}},
		{"event of the wrong kind", []string{"G16"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(exists("/a", ok)))
			h.do(1, 6, set("/a", "e"))
			h.event(2, 6, pick(bug, jute.EventDeleted, jute.EventDataChanged), "/a")
		}},
		{"watch not told", []string{"G17"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(list("/a")))
			h.do(1, 6, create("/a/x", 0))
			if !bug {
				h.event(2, 6, jute.EventChildrenChanged, "/a")
			}
			h.do(2, 6, exists("/a", ok))
		}},
		{"watch of a silent session's node not told", []string{"G17"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/e", 1))
			h.do(2, 5, watching(exists("/e", ok)))
			if !bug {
				h.event(2, 7, jute.EventDeleted, "/e")
			}
			h.do(2, 8, exists("/e", jute.NoNode))
		}},
		{"persistent watch lost", []string{"G17"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, Op{Step: Step{Op: jute.OpAddWatch, Path: "/"}, Mode: 1})
			h.do(1, 6, set("/a", "e"))
			h.do(1, 7, set("/a", "f"))
			h.event(2, 6, jute.EventDataChanged, "/a")
			if !bug {
				h.event(2, 7, jute.EventDataChanged, "/a")
			}
			h.do(2, 7, exists("/a", ok))
		}},
		{"change missed while away", []string{"G17"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.do(2, 5, watching(exists("/a", ok)))
			h.do(1, 6, set("/a", "e"))
			h.attach(3, 2, false, 5)
			if !bug {
				h.event(3, -1, jute.EventDataChanged, "/a")
			}
			h.do(3, 6, Op{Step: Step{Op: jute.OpSetWatches}, Watches: &jute.SetWatches{RelativeZxid: 5, Data: []string{
				"/a"}}})
		}},
		{"change made up on return", []string{"G16"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/a", 0))
			h.attach(3, 2, false, 5)
			if bug {
				h.event(3, -1, jute.EventDataChanged, "/a")
			}
			h.do(3, 6, Op{Step: Step{Op: jute.OpSetWatches}, Watches: &jute.SetWatches{RelativeZxid: 5, Data: []string{
				"/a"}}})
		}},
		{"sequence number given again", []string{"G19", "G6"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/q", 0))
			h.do(1, 6, createSeq("/q/n-", "/q/n-0000000000"))
			h.do(1, 7, remove("/q/n-0000000000"))
			h.do(1, 8, createSeq("/q/n-", pick(bug, "/q/n-0000000000", "/q/n-0000000001")))
		}},
		{"sequence number skipped", []string{"G19"}, func(h *hist, bug bool) {
			h.do(1, 5, create("/q", 0))
			h.do(1, 6, createSeq("/q/n-", pick(bug, "/q/n-0000000001", "/q/n-0000000000")))
		}},
	} {
		for _, bug := range []bool{false, true} {
			h := &hist{session: map[int]int64{}, ids: map[int][]jute.ID{2: {user("b")}}}
			c.run(h, bug)
			bad := Check(h.records, Options{})
			expect.That(t, bug || len(bad) <= 0, "%s: right history is refused: %v", c.name, bad)
			if bug && !slices.ContainsFunc(bad, func(v Violation) bool { return slices.Contains(c.rules, v.Rule) }) {
				t.Errorf("%s: not found, only %v", c.name, bad)
			}
		}
	}
}
