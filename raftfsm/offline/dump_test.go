package offline

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// entryOf makes an entry of the log with the requests of one stream; by is its server, 0 the leader itself.
func entryOf(options byte, by, birth uint32, first uint64, requests ...state.Request) []byte {
	bl := state.Block{Origin: by, Birth: birth, First: first, Count: uint32(len(requests))}
	for _, r := range requests {
		bl.Requests = r.Append(bl.Requests)
	}
	entry := bl.Append(state.BeginEntry(nil, options))
	state.SealEntry(entry, 1_700_000_000_000)
	return entry
}

// withLog returns a data directory whose log holds entries, and the number of the first.
func withLog(t *testing.T, entries ...*raft.Log) (dir string, first uint64) {
	t.Helper()
	dir = imported(t)
	d := must.Get(start(dir))(t)
	first = 2 // behind the snapshot of an import
	for i, e := range entries {
		e.Index, e.Term = first+uint64(i), 1
		must.OK(t, d.Log().StoreLog(e))
	}
	must.OK(t, d.Close())
	return dir, first
}

func dumped(t *testing.T, path string, nodes bool) string {
	t.Helper()
	var out bytes.Buffer
	must.OK(t, Dump(&out, path, nodes))
	return out.String()
}

// Every entry of a log is shown with its place, and every request with what came of it, without passwords.
func TestDumpShowsTheLog(t *testing.T) {
	text := jute.AppendString
	create := func(path string, flags int32, more ...byte) []byte {
		b := jute.AppendBuffer(text(nil, path), []byte("data"))
		return append(jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags), more...)
	}
	multi := append(jute.AppendMultiHeader(nil, jute.OpCreate, false, -1), create("/m", 0)...)
	multi = jute.AppendInt(text(jute.AppendMultiHeader(multi, jute.OpCheck, false, -1), "/m"), 7)
	multi = jute.AppendMultiHeader(multi, jute.OpError, true, -1)
	member := state.Member{ID: 1, Incarnation: "a"}
	session := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	of := func(op jute.OpCode, body []byte) state.Request {
		return state.Request{Session: client, Gen: 1, Op: op, Body: body}
	}
	asBob := of(jute.OpCreate, create("/n", 0))
	asBob.IDs = []jute.ID{{Scheme: "digest", ID: "bob:secret"}}
	stranger := of(jute.OpSync, text(nil, "/n"))
	stranger.Session = 99
	long := jute.AppendBuffer(text(nil, "/n"), bytes.Repeat([]byte("x"), 50))
	acl := jute.AppendInt(jute.AppendACL(text(nil, "/n"), jute.WorldAnyone), 3)
	dir, _ := withLog(t,
		&raft.Log{Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{
			Servers: []raft.Server{{ID: "1", Address: "a:1"}, {ID: "2", Address: "b:1",
				Suffrage: raft.Nonvoter}}})},
		&raft.Log{Type: raft.LogCommand, Data: entryOf(0, 1, 0, 0,
			state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(member.Append(nil), 1)})},
		&raft.Log{Type: raft.LogNoop},
		&raft.Log{Type: raft.LogCommand, Data: entryOf(state.NoQuota|state.LowDisk, 1, 1, 1,
			state.Request{Op: state.OpCreateSession, Body: session.Append(nil)}, asBob,
			of(jute.OpSetData, jute.AppendInt(long, -1)),
			of(jute.OpDelete, jute.AppendInt(text(nil, "/none"), -1)), of(jute.OpMulti, multi), stranger,
			of(jute.OpSetACL, acl), of(jute.OpCreateTTL, create("/u", jute.FlagPersistentTTL,
				jute.AppendLong(nil, 5000)...)))},
		&raft.Log{Type: raft.LogCommand, Data: entryOf(state.NoTTL|state.Full, 0, 0, 0,
			state.Request{Op: state.OpBarrier},
			state.Request{Op: jute.OpSetACL, Body: []byte{1}},
			state.Request{Op: state.OpDigest, Body: jute.AppendLong(jute.AppendLong(nil, 5), 255)},
			state.Request{Op: state.OpReap, Body: []byte("/c")})},
	)
	got := strings.ReplaceAll(dumped(t, dir, false), dir, "DIR")
	const by, as = "  server 1 stream 1 request ", " session 0x100000000000001 generation 1"
	for _, line := range []string{
		"# DIR: data directory of a zlockd", "# snapshot behind entry 1 of term 1", "member 1 local voter",
		"session 0x100000000000001 timeout 40000ms generation 1 server 1 address  created 1970-01-01T00:00:00.001Z",
		"# log", "entry 2 term 1 members  (DIR/raft/log/000000000001.log at byte 24)", "member 1 a:1 voter",
		"member 2 b:1 nonvoter", "  server 1 stream 0 request 0: openStream -> ok 0x9",
		"entry 4 term 1 lognoop  (DIR/raft/log/000000000001.log at byte 296)",
		"entry 5 term 1 2023-11-14T22:13:20.000Z no-quota,low-disk  (DIR/raft/log/000000000001.log at byte 352)",
		by + "1: createSession timeout 10000ms at server 1 from 10.0.0.1 -> ok 0xa",
		by + "2" + as + ` as digest:bob: create "/n" data "data" acl world:anyone:31 flags 0 -> ok 0xb`,
		by + "3" + as + `: setData "/n" data "` + strings.Repeat("x", 40) + `"… (50 bytes) version -1 -> ok 0xc`,
		by + "4" + as + `: delete "/none" version -1 -> no node (-101)`,
		by + "5" + as + `: multi [create "/m" data "data" acl world:anyone:31 flags 0; check "/m" version 7]` +
			" -> ok 0xc",
		by + `6 session 0x63 generation 1: sync "/n" -> refused: its session was gone or elsewhere`,
		by + "7" + as + `: setACL "/n" acl world:anyone:31 version 3 -> bad version (-103)`,
		by + "8" + as + `: createTTL "/u" data "data" acl world:anyone:31 flags 5 ttl 5000 -> ok 0xd`, "  zxid 0xd",
		"entry 6 term 1 2023-11-14T22:13:20.000Z no-ttl,full  (DIR/raft/log/000000000001.log at byte 1000)",
		"  leader: barrier -> ok 0xd",
		"  leader: setACL (does not decode: jute: record is cut short) 01" +
			" -> refused: its session was gone or elsewhere",
		"  leader: digest of zxid 0x5: 00000000000000ff -> ok 0xd", `  leader: reap "/c" -> ok 0xe`, "  zxid 0xe",
		"# good to entry 6 of term 1, zxid 0xe",
	} {
		expect.Has(t, got, line+"\n")
	}
	expect.That(t, !strings.Contains(got, "secret"), "a password is shown:\n%s", got)
	expect.That(t, !strings.Contains(got, "\nnode "), "nodes are shown:\n%s", got)
	expect.Has(t, dumped(t, dir, true), `node "/t" time to live 5000 ms data ""`)
}

// The files of a ZooKeeper are shown one after another; one that is damaged keeps the others readable.
func TestDumpShowsZooKeepersFiles(t *testing.T) {
	dir := zooDir(t)
	got := dumped(t, dir, false)
	for _, line := range []string{"# snapshot.0", "# snapshot.4", "# log.1", "# log.5", "# good to the end",
		"zxid 0x4 nodes 7 sessions 1 acls 3", "session 0x100000000000001 timeout 40000ms",
		"  createSession timeout 40000ms",
		`  create "/a" data "x" acl world:anyone:31 parent's children ever created 1`,
		`  create "/a/e" data null acl world:anyone:31 parent's children ever created 1 ephemeral`,
		`  createTTL "/t" data "" acl digest:a:zxQJ…:31 parent's children ever created 2 ttl 5000`,
		`  delete "/c/n"`, `  setData "/a" data "yy" version 1`,
		`  setACL "/a" acl digest:a:zxQJ…:31 version 1`, "# good to zxid 0x9: nodes 8 sessions 1"} {
		expect.Has(t, got, line+"\n")
	}
	expect.Has(t, got, "\ntxn 0x2 1970-01-01T00:00:01.001Z session 0x100000000000001 cxid 0 create  (at byte ")
	path := filepath.Join(dir, "version-2", "log.1")
	b := must.Get(os.ReadFile(path))(t)
	b[40] ^= 1
	must.OK(t, os.WriteFile(path, b, 0o600))
	var out bytes.Buffer
	must.Fails(t, Dump(&out, dir, false), "a damaged file")
	got = out.String()
	expect.Has(t, got, "# DAMAGED: ")
	expect.Has(t, got, `  setData "/a" data "yy" version 1`+"\n")
	expect.That(t, !strings.Contains(got, "# good to zxid"), "%s", got)
}
