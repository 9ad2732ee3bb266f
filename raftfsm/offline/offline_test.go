package offline

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

const client = 0x100000000000001

// history returns what a ZooKeeper has logged.
func history() []*zkfiles.Txn {
	world := jute.WorldAnyone
	secret := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "digest", ID: "a:zxQJmxLMiHGwaqBvst5y6rkB6HQ="}}}
	ops := []zkfiles.Op{
		{Type: zkfiles.OpCreateSession, Timeout: 40000},
		{Type: jute.OpCreate, Path: "/a", Data: []byte("x"), ACL: world, Cversion: 1},
		{Type: jute.OpCreate, Path: "/a/e", ACL: world, Ephemeral: true, Cversion: 1},
		{Type: jute.OpCreateTTL, Path: "/t", Data: []byte{}, ACL: secret, Cversion: 2, TTL: 5000},
		{Type: jute.OpCreateContainer, Path: "/c", Data: []byte{}, ACL: world, Cversion: 3},
		{Type: jute.OpCreate, Path: "/c/n", Data: []byte("q"), ACL: world, Cversion: 1},
		{Type: jute.OpDelete, Path: "/c/n"},
		{Type: jute.OpSetData, Path: "/a", Data: []byte("yy"), Version: 1},
		{Type: jute.OpSetACL, Path: "/a", ACL: secret, Version: 1},
	}
	var log []*zkfiles.Txn
	for i, o := range ops {
		log = append(log, &zkfiles.Txn{Session: client, Zxid: int64(i + 1), Time: int64(1000 + i), Type: o.Type,
			Ops: []zkfiles.Op{o}})
	}
	return log
}

func snapshotOf(t *testing.T, z *zkfiles.Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	acls := z.Nodes.ACLs()
	slices.SortFunc(acls, func(x, y []jute.ACL) int { // so that the bytes are the same in each run
		return bytes.Compare(jute.AppendACL(nil, x), jute.AppendACL(nil, y))
	})
	w := must.Get(zkfiles.NewSnapshotWriter(&b, -1, z.Sessions, acls))(t)
	z.Nodes.Walk(func(path string, n tree.Info) bool {
		must.OK(t, w.Node(path, &n))
		return true
	})
	must.OK(t, w.Close(z.Zxid))
	return b.Bytes()
}

func logOf(log []*zkfiles.Txn) []byte {
	b := zkfiles.AppendLogHeader(nil, 0)
	for _, x := range log {
		b = zkfiles.AppendLogEntry(b, x)
	}
	return append(b, make([]byte, 200)...)
}

// zooDir writes the data directory of a ZooKeeper: snapshots of zxid 0 and 4, and logs that start at 1 and 5.
func zooDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sub := filepath.Join(dir, "version-2")
	must.OK(t, os.Mkdir(sub, 0o700))
	tree := zkfiles.NewTree()
	files := map[string][]byte{"snapshot.0": snapshotOf(t, tree), "log.1": logOf(history()[:4]),
		"log.5": logOf(history()[4:])}
	for _, x := range history()[:4] {
		must.OK(t, tree.Apply(x))
	}
	files["snapshot.4"] = snapshotOf(t, tree)
	for name, b := range files {
		must.OK(t, os.WriteFile(filepath.Join(sub, name), b, 0o600))
	}
	return dir
}

func doImport(from, to string, keep bool) (*Made, error) {
	z, err := LoadZooKeeper(ZooKeeperOptions{From: from})
	if err != nil {
		return nil, err
	}
	return Import(context.Background(), z, to, 1, keep, 1)
}

// equal() ends the test if the contents of two files or directories differ.
func equal(t *testing.T, a, b string, ephemerals bool) {
	t.Helper()
	x := must.Get(LoadContent(a, ""))(t)
	y := must.Get(LoadContent(b, ""))(t)
	diffs, _ := Compare(x, y, ephemerals)
	must.That(t, len(diffs) <= 0, "%v", strings.Join(diffs, "\n"))
}

func TestThereAndBack(t *testing.T) {
	for _, keep := range []bool{false, true} {
		from, tmp := zooDir(t), t.TempDir()
		ours, back := filepath.Join(tmp, "ours"), filepath.Join(tmp, "back")
		m := must.Get(doImport(from, ours, keep))(t)
		expect.Equal(t, m.Zxid, 9, "m.Zxid")
		expect.Equal(t, len(m.Left), map[bool]int{false: 1, true: 0}[keep], "len(m.Left)")
		equal(t, from, ours, keep)
		s := must.Get(ReadState(ours))(t)
		sess, ok := s.Sessions().Get(client)
		expect.Equal(t, ok, keep, "keep %v: ok", keep)
		if keep {
			expect.Equal(t, sess.Password, zkfiles.Password(client), "password of the session that was kept")
		}
		must.Get(Export(t.Context(), s, back, keep))(t)
		equal(t, ours, back, true)
		again := filepath.Join(tmp, "again")
		must.Get(doImport(back, again, keep))(t)
		equal(t, ours, again, true)
	}
}

// An import that finds a fault in a ZooKeeper's directory names the fault and creates nothing.
func TestBadZooKeeperIsRefused(t *testing.T) {
	file := func(dir, name string) string { return filepath.Join(dir, "version-2", name) }
	read := func(dir, name string) []byte {
		b := must.Get(os.ReadFile(file(dir, name)))(t)
		return b
	}
	write := func(dir, name string, b []byte) { must.OK(t, os.WriteFile(file(dir, name), b, 0o600)) }
	flip := func(name string, at int) func(string) {
		return func(dir string) {
			b := read(dir, name)
			b[at] ^= 1
			write(dir, name, b)
		}
	}
	remove := func(names ...string) func(string) {
		return func(dir string) {
			for _, n := range names {
				must.OK(t, os.Remove(file(dir, n)))
			}
		}
	}
	whole := len(bytes.TrimRight(logOf(history()[4:]), "\x00"))
	for _, c := range []struct {
		name string
		do   func(dir string)
		want string
	}{
		{"torn last record", func(dir string) { write(dir, "log.5", read(dir, "log.5")[:whole-20]) },
			"log.5: at byte 3"},
		{"torn last record, padded", func(dir string) {
			b := read(dir, "log.5")
			clear(b[whole-20:])
			write(dir, "log.5", b)
		}, "--drop-torn-record"},
		{"torn last record, and an empty log behind it", func(dir string) {
			write(dir, "log.5", read(dir, "log.5")[:whole-20])
			write(dir, "log.a", nil)
		}, "--drop-torn-record"},
		{"torn last record, and a log behind it that was begun", func(dir string) {
			write(dir, "log.5", read(dir, "log.5")[:whole-20])
			write(dir, "log.a", append(logOf(nil)[:16:16], make([]byte, 4096)...))
		}, "--drop-torn-record"},
		{"torn record long before the snapshot", func(dir string) {
			b := bytes.TrimRight(logOf(history()[:2]), "\x00")
			remove("log.5")(dir)
			write(dir, "log.1", b[:len(b)-3])
		}, "end with zxid 0x1, before this snapshot"},
		{"flipped byte in a log", flip("log.5", 60), "log.5: at byte 16: the checksum is wrong"},
		{"flipped byte in the snapshot", flip("snapshot.4", 90), "snapshot.4: at byte"},
		{"no log", remove("log.1", "log.5"), ": there is no log in "},
		{"the snapshot's own log gone", func(dir string) {
			remove("log.5")(dir)
			write(dir, "log.1", logOf(history()[:3]))
		}, "end with zxid 0x3, before this snapshot"},
		{"the log behind the snapshot gone", func(dir string) {
			remove("log.5")(dir)
			write(dir, "log.7", logOf(history()[6:]))
		}, "begins with zxid 0x5"},
		{"two snapshots of one zxid", func(dir string) { write(dir, "snapshot.4.gz", []byte("x")) },
			"have the same zxid"},
		{"unknown type", func(dir string) {
			x := *history()[8]
			x.Type, x.Ops = 99, nil
			write(dir, "log.5", logOf(append(history()[4:8], &x)))
		}, "type 99"},
		{"version 1", func(dir string) {
			b := read(dir, "snapshot.4")
			b[7] = 1
			write(dir, "snapshot.4", b)
		}, "format version 1 is not supported"},
		{"empty version-2", remove("log.1", "log.5", "snapshot.0", "snapshot.4"), "neither a snapshot nor a log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := zooDir(t)
			c.do(dir)
			to := filepath.Join(t.TempDir(), "new")
			_, err := doImport(dir, to, false)
			expect.That(t, err != nil && strings.Contains(err.Error(), c.want),
				"got %v, want %q", err, c.want)
			expect.Fails(t, expect.Err(os.Stat(to)), "something was made")
		})
	}
}

func TestTornRecordIsLeftOutOnRequest(t *testing.T) {
	dir := zooDir(t)
	file := filepath.Join(dir, "version-2", "log.5")
	b := must.Get(os.ReadFile(file))(t)
	must.OK(t, os.WriteFile(file, b[:len(bytes.TrimRight(b, "\x00"))-20], 0o600))
	z := must.Get(LoadZooKeeper(ZooKeeperOptions{From: dir, DropTorn: true}))(t)
	expect.That(t, z.Zxid == 8 && len(z.Notes) == 1, "zxid %d, notes %q", z.Zxid, z.Notes)
}

// If the snapshot has the change of a torn log record, the import loses nothing. It notes the torn record.
func TestTornRecordThatTheSnapshotHolds(t *testing.T) {
	dir := zooDir(t)
	b := bytes.TrimRight(logOf(history()[:4]), "\x00")
	must.OK(t, os.WriteFile(filepath.Join(dir, "version-2", "log.1"), b[:len(b)-3], 0o600))
	must.OK(t, os.Remove(filepath.Join(dir, "version-2", "log.5")))
	z := must.Get(LoadZooKeeper(ZooKeeperOptions{From: dir}))(t)
	expect.Equal(t, z.Zxid, 4, "zxid")
	if expect.Equal(t, len(z.Notes), 1, "notes: %q", z.Notes) {
		expect.Has(t, z.Notes[0], "snapshot 4 is newer")
	}
}

// A ZooKeeper died while it wrote its newest snapshot. An import skips this snapshot, and notes that.
func TestUnfinishedSnapshotIsPassedOver(t *testing.T) {
	dir := zooDir(t)
	file := filepath.Join(dir, "version-2", "snapshot.4")
	b := must.Get(os.ReadFile(file))(t)
	for _, n := range []int{0, 10, len(b) / 2, len(b) - 1} {
		must.OK(t, os.WriteFile(file, b[:n], 0o600))
		z := must.Get(LoadZooKeeper(ZooKeeperOptions{From: dir}))(t)
		expect.Equal(t, z.Zxid, 9, "%d bytes: zxid", n)
		expect.Equal(t, len(z.Notes), 1, "%d bytes: notes: %q", n, z.Notes)
	}
}

// A renamed snapshot is imported with the zxid of its digest. If its nodes do not match the digest, the tree
// changed while the snapshot was written. Such a snapshot has only some of the changes, and is refused.
func TestSnapshotWithoutItsName(t *testing.T) {
	z := must.Get(LoadZooKeeper(ZooKeeperOptions{From: zooDir(t)}))(t)
	b := snapshotOf(t, z.Tree)
	file := filepath.Join(t.TempDir(), "cafe") // a hexadecimal number that is not the zxid
	must.OK(t, os.WriteFile(file, b, 0o600))
	again := must.Get(LoadZooKeeper(ZooKeeperOptions{From: file}))(t)
	expect.Equal(t, again.Zxid, z.Zxid, "zxid")
	const seal = 13
	body := b[: len(b)-seal : len(b)-seal]
	body[len(body)-1] ^= 1 // change a byte of the digest
	b = jute.AppendString(jute.AppendLong(body, int64(adler32.Checksum(body))), "/")
	must.OK(t, os.WriteFile(file, b, 0o600))
	expect.Has(t, fmt.Sprint(expect.Err(LoadZooKeeper(ZooKeeperOptions{From: file}))),
		"was written while the tree changed")
}

func TestCompressedSnapshot(t *testing.T) {
	dir := zooDir(t)
	file := filepath.Join(dir, "version-2", "snapshot.4")
	plain := must.Get(os.ReadFile(file))(t)
	before := must.Get(LoadContent(dir, ""))(t)
	must.OK(t, os.Remove(file))
	f := must.Get(os.Create(file + ".gz"))(t)
	z := gzip.NewWriter(f)
	z.Write(plain)
	must.OK(t, errors.Join(z.Close(), f.Close()))
	after := must.Get(LoadContent(dir, ""))(t)
	diffs, _ := Compare(before, after, true)
	expect.That(t, len(diffs) <= 0, "%v", diffs)
	b := must.Get(os.ReadFile(file + ".gz"))(t)
	must.OK(t, os.WriteFile(file+".gz", b[:len(b)/2], 0o600))
	expect.Equal(t, len(must.Get(LoadZooKeeper(ZooKeeperOptions{From: dir}))(t).Notes), 1, "half a file")
}

func TestTargetMustBeEmpty(t *testing.T) {
	dir, to := zooDir(t), t.TempDir()
	_, err := doImport(dir, to, false)
	must.OK(t, err) // an import into an empty directory succeeds
	_, err = doImport(dir, to, false)
	if expect.Fails(t, err, "an import into a directory with files") {
		expect.Has(t, err.Error(), "is not empty")
	}
	equal(t, dir, to, false) // the first import is still there
	s := must.Get(ReadState(to))(t)
	_, err = Export(t.Context(), s, to, false)
	if expect.Fails(t, err, "an export into a directory with files") {
		expect.Has(t, err.Error(), "is not empty")
	}
}

// An import refuses data in which an ephemeral node has children, as a server would.
func TestImportRefusesWhatNoServerReads(t *testing.T) {
	for _, keep := range []bool{true, false} {
		dir := zooDir(t)
		log := append(history(), &zkfiles.Txn{Session: client, Zxid: 10, Type: jute.OpCreate,
			Ops: []zkfiles.Op{{Type: jute.OpCreate, Path: "/a/e/x", ACL: jute.WorldAnyone, Cversion: 1}}})
		must.OK(t, os.WriteFile(filepath.Join(dir, "version-2", "log.5"), logOf(log[4:]), 0o600))
		to := filepath.Join(t.TempDir(), "new")
		m, err := doImport(dir, to, keep)
		if keep {
			expect.Has(t, fmt.Sprint(err), `"/a/e": it is ephemeral and has children`)
			expect.Fails(t, expect.Err(os.Stat(to)), "something was made")
			continue
		}
		must.OK(t, err)
		expect.List(t, m.Left, []string{"/a/e", "/a/e/x"}, "left out")
		expect.OK(t, expect.Err(ReadState(to)), "what was made")
	}
}

// A write that fails after some bytes, as on a full disk, leaves nothing behind.
func TestNothingHalfMadeIsLeft(t *testing.T) {
	full := errors.New("no space left on device")
	for _, made := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "new")
		if !made {
			must.OK(t, os.Mkdir(dir, 0o700))
		}
		err := found(t.Context(), dir, 1, "c", func(w io.Writer) error {
			if _, err := w.Write(make([]byte, 5<<20)); err != nil {
				return err
			}
			return full
		})
		expect.Is(t, err, full)
		entries, err := os.ReadDir(dir)
		if made {
			expect.Is(t, err, os.ErrNotExist, "the directory that was made")
		} else {
			expect.Equal(t, len(entries), 0, "files left in the directory: %v", entries)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := must.Get(ReadState(imported(t)))(t)
	dir := filepath.Join(t.TempDir(), "back")
	expect.Is(t, expect.Err(Export(ctx, s, dir, false)), context.Canceled)
	expect.Fails(t, expect.Err(os.Stat(dir)), "an interrupted export left something")
}

// imported() returns the data directory of a server.
func imported(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	must.Get(doImport(zooDir(t), dir, true))(t)
	return dir
}

func TestRestoreBeginsANewCluster(t *testing.T) {
	data := imported(t)
	backup := filepath.Join(t.TempDir(), "backup")
	before := must.Get(ReadState(data))(t)
	must.OK(t, vfs.Fill(backup, func(w io.Writer) error { return WriteBackup(w, before) }))
	equal(t, data, backup, true)
	for _, keep := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "new")
		began := state.TimeZxid(time.Now().UnixMilli())
		m := must.Get(Restore(t.Context(), backup, dir, 3, keep, 5))(t)
		equal(t, backup, dir, keep)
		noted := slices.ContainsFunc(m.Notes, func(n string) bool {
			return strings.Contains(n, "1 sessions of the backup were kept")
		})
		expect.Equal(t, noted, keep, "keep %v: notes %q", keep, m.Notes)
		after := must.Get(ReadData(dir))(t)
		expect.That(t, after.ClusterID() != before.ClusterID(), "the cluster is still %s", before.ClusterID())
		expect.Equal(t, after.Identity.Cluster, m.Cluster, "after.Identity.Cluster")
		expect.Equal(t, after.Identity.Server, 3, "after.Identity.Server")
		now := state.TimeZxid(time.Now().UnixMilli())
		expect.That(t, after.Zxid() > before.Zxid(), "zxid 0x%x, and the backup has 0x%x", after.Zxid(), before.Zxid())
		expect.That(t, after.Zxid() >= began, "zxid 0x%x is before the restore's time 0x%x", after.Zxid(), began)
		expect.That(t, after.Zxid() <= now+1, "zxid 0x%x is after the restore's time 0x%x", after.Zxid(), now)
		expect.Equal(t, after.Sessions().Len(), map[bool]int{true: 1}[keep],
			"keep %v: after.Sessions().Len()", keep)
	}
	b := must.Get(os.ReadFile(backup))(t)
	for _, at := range []int{0, 30, len(b) / 2, len(b) - 1} {
		bad := bytes.Clone(b)
		bad[at] ^= 1
		must.OK(t, os.WriteFile(backup, bad, 0o600))
		dir := filepath.Join(t.TempDir(), "new")
		expect.Fails(t, expect.Err(Restore(t.Context(), backup, dir, 1, true, 5)),
			"byte %d changed: restored", at)
		expect.Fails(t, expect.Err(os.Stat(dir)), "byte %d changed: something was made", at)
	}
}

// Nodes that a restore leaves out are listed in the order of their paths.
func TestLeftNodesAreSorted(t *testing.T) {
	var sessions []session.Session
	paths := []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
	var want []string
	for i := range 20 {
		sessions = append(sessions, session.Session{ID: int64(i + 1)})
		want = append(want, fmt.Sprintf("/e%02d", i))
	}
	nodes := tree.NewMaker()
	for i, p := range append(paths, want...) {
		info := &tree.Info{ACL: jute.WorldAnyone}
		if i >= len(paths) {
			info.Kind, info.EphemeralOwner = tree.EphemeralNode, sessions[i-len(paths)].ID
		}
		must.OK(t, nodes.Set(p, info))
	}
	s := must.Get(state.Adopt("c", 1, sessions, nodes))(t)
	expect.List(t, refound(s, false, 1).Left, want, "left out")
}

// If `zlockd recover` is interrupted while it replaces the data, no server starts on the directory. Running
// it again finishes the replacement.
func TestRecoverCanBeInterrupted(t *testing.T) {
	for step := range 8 {
		t.Run(fmt.Sprint("step", step), func(t *testing.T) {
			dir := imported(t)
			r := must.Get(PlanRecovery(dir))(t)
			old := r.ClusterID()
			if step == 7 {
				must.Get(r.Run(t.Context(), 1))(t)
			} else {
				next := filepath.Join(dir, "recovering")
				m := refound(r.State, true, 1)
				f := disk.Founding{Server: 1, Cluster: m.Cluster, Index: 1, Term: 1}
				must.OK(t, disk.Found(next, f, func(w io.Writer) error { return WriteBackup(w, r.State) }))
				moves := []struct{ from, to string }{{"identity", oldDir}, {"raft", oldDir}, {"snapshots", oldDir},
					{"recovering/snapshots", ""}, {"recovering/raft", ""}, {"recovering/identity", ""}}
				must.OK(t, os.MkdirAll(filepath.Join(dir, oldDir), 0o700))
				for _, m := range moves[:step] {
					must.OK(t, os.Rename(filepath.Join(dir, m.from), filepath.Join(dir, m.to, filepath.Base(m.from))))
				}
				if d, err := disk.Open(disk.Options{Server: 1, Dir: dir, LogStore: "wal",
					SnapshotRetain: 1}); err == nil {
					d.Close()
					t.Fatal("a server started in between")
				}
				must.That(t, Interrupted(dir), "the interruption is not seen")
				must.OK(t, Finish(dir))
			}
			after := must.Get(ReadData(dir))(t)
			expect.That(t, after.ClusterID() != old, "the cluster is still %s", old)
			expect.Equal(t, after.Sessions().Len(), 1, "sessions")
			expect.That(t, !Interrupted(dir), "the directory still counts as interrupted")
			before := must.Get(ReadData(filepath.Join(dir, oldDir)))(t)
			expect.Equal(t, before.ClusterID(), old, "what was there")
			equal(t, dir, filepath.Join(dir, oldDir), true)
		})
	}
}

// A quota counts the nodes that an import keeps, and does not count the nodes that it leaves out.
func TestQuotaCountsWhatIsTaken(t *testing.T) {
	const quota = "/zookeeper/quota/a"
	for keep, want := range map[bool]string{true: "count=2,bytes=5", false: "count=1,bytes=2"} {
		dir := zooDir(t)
		log := history()
		log[2].Ops[0].Data = []byte("eee")
		for i, path := range []string{quota, quota + "/zookeeper_limits", quota + "/zookeeper_stats"} {
			o := zkfiles.Op{Type: jute.OpCreate, Path: path, Data: []byte("count=5,bytes=-1"), ACL: jute.WorldAnyone,
				Cversion: 1}
			log = append(log, &zkfiles.Txn{Session: client, Zxid: int64(10 + i), Time: 2000, Type: o.Type,
				Ops: []zkfiles.Op{o}})
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "version-2", "log.1"), logOf(log), 0o600))
		must.OK(t, os.Remove(filepath.Join(dir, "version-2", "log.5")))
		must.OK(t, os.Remove(filepath.Join(dir, "version-2", "snapshot.4")))
		to := filepath.Join(t.TempDir(), "new")
		must.Get(doImport(dir, to, keep))(t)
		s := must.Get(ReadState(to))(t)
		stats, ok := s.Tree().Get(quota + "/zookeeper_stats")
		if expect.That(t, ok, "keep %v: the quota has no statistics", keep) {
			expect.Equal(t, string(stats.Data), want, "keep %v: string(stats.Data)", keep)
		}
	}
}

// Recover can be run again on its own result. It keeps the old data of every run.
func TestRecoverTwice(t *testing.T) {
	dir := imported(t)
	var before []string
	for n := range 3 {
		r := must.Get(PlanRecovery(dir))(t)
		before = append(before, r.ClusterID())
		m := must.Get(r.Run(t.Context(), 1))(t)
		after := must.Get(ReadData(dir))(t)
		expect.Equal(t, after.ClusterID(), m.Cluster, "cluster after recover number %d", n+1)
		expect.Equal(t, after.Zxid(), m.Zxid, "zxid after recover number %d", n+1)
	}
	for i, name := range []string{oldDir + "-1", oldDir + "-2", oldDir} {
		kept, err := ReadData(filepath.Join(dir, name))
		if expect.OK(t, err,
			"what was there before recover number %d is not kept in %s", i+1, name) {
			expect.Equal(t, kept.ClusterID(), before[i],
				"what was there before recover number %d is not kept in %s: kept.ClusterID()",
				i+1, name)
		}
	}
}

// Recover changes nothing in a directory whose server runs, or has run since the directory was read.
func TestRecoverOfADirectoryInUse(t *testing.T) {
	dir := imported(t)
	r := must.Get(PlanRecovery(dir))(t)
	d := must.Get(start(dir))(t)
	_, err := r.Run(t.Context(), 1)
	if expect.Fails(t, err, "while a server runs") {
		expect.Has(t, err.Error(), "in use")
	}
	must.OK(t, d.Close())
	before := contents(t, dir)
	_, err = r.Run(t.Context(), 1)
	if expect.Fails(t, err, "after a server ran") {
		expect.Has(t, err.Error(), "was started")
	}
	expect.Equal(t, contents(t, dir), before, "something was changed")
}

// start() opens a data directory as a starting server does.
func start(dir string) (*disk.Disk, error) {
	return disk.Open(disk.Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 1, Rand: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}})
}

// A data directory that lacks a part cannot be read, and no server starts on it.
func TestDirectoryWithoutItsPartsIsNotRead(t *testing.T) {
	for _, c := range []struct {
		without string // patterns of the files that are missing
		whole   bool
	}{
		{"", true}, {"raft/stable.db", false}, {"raft/log", false}, {"snapshots", false}, {"snapshots/*", false},
		{"raft/log/* snapshots/*", false},
	} {
		dir := imported(t)
		for range 2 { // twice: the second start continues the log of the first
			d := must.Get(start(dir))(t)
			_, end := must.Get2(d.Promised())(t)
			must.OK(t, d.Log().StoreLog(&raft.Log{Index: end + 1, Term: 1, Type: raft.LogNoop}))
			must.OK(t, d.Close())
		}
		for _, pattern := range strings.Fields(c.without) {
			files := must.Get(filepath.Glob(filepath.Join(dir, pattern)))(t)
			for _, f := range files {
				must.OK(t, os.RemoveAll(f))
			}
		}
		_, err := ReadData(dir)
		expect.Equal(t, err == nil, c.whole, "read without %q", c.without)
		d, err := start(dir)
		if err == nil {
			d.Close()
		}
		expect.Equal(t, err == nil, c.whole, "started without %q: %v", c.without, err)
	}
}

// A log file may be a symbolic link. If its target is missing, the import fails.
func TestFilesThatAreLinkedCount(t *testing.T) {
	dir := zooDir(t)
	file, elsewhere := filepath.Join(dir, "version-2", "log.5"), filepath.Join(t.TempDir(), "l")
	must.OK(t, os.Rename(file, elsewhere))
	must.OK(t, os.Symlink(elsewhere, file))
	z := must.Get(LoadZooKeeper(ZooKeeperOptions{From: dir}))(t)
	expect.Equal(t, z.Zxid, 9, "zxid 0x")
	must.OK(t, os.Remove(elsewhere))
	expect.Fails(t, expect.Err(LoadZooKeeper(ZooKeeperOptions{From: dir})),
		"the log is not there, and that is no error")
}

// contents() returns each file below path with its content.
func contents(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	must.OK(t, filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			fmt.Fprintf(&all, "%s %s %x %v\n", p, info.Mode(), b, err)
		}
		return err
	}))
	return all.String()
}

// If two restores follow each other quickly, the second still continues from a later zxid.
func TestG20LaterRestoresGoOnFromLaterZxids(t *testing.T) {
	for range 20 {
		first, _ := goesOn(1)
		second, _ := goesOn(1)
		expect.That(t, second > first+1000, "0x%x follows 0x%x", second, first)
	}
}
