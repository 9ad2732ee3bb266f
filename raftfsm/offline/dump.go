package offline

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// Dump prints the content of a path as text and checks all of it; with nodes it also prints every
// node of snapshots. It changes nothing.
func Dump(w io.Writer, path string, nodes bool) error {
	kind, err := FileKindOf(path)
	if err != nil {
		return err
	}
	p := &printer{w: bufio.NewWriterSize(w, 64<<10), nodes: nodes}
	p.line("# %s: %s", path, kind)
	switch kind {
	case DataDir:
		err = p.dataDir(path)
	case Backup:
		var s *state.State
		if s, err = ReadBackup(path); err == nil {
			p.state(s)
		}
	case ZooSnapshot:
		err = p.zooSnapshot(path)
	case ZooLog:
		err = p.zooLog(path)
	case ZooKeeperDir:
		err = p.zooDir(path)
	}
	return errors.Join(err, p.w.Flush())
}

type printer struct {
	w     *bufio.Writer
	nodes bool
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func clock(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// dataDir prints the newest snapshot and the log, and applies every entry to learn its outcomes.
func (p *printer) dataDir(dir string) error {
	s, r, err := openData(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	id, d := s.Identity, r.d
	p.line("server %d incarnation %s cluster %s term %d log-store %s", id.Server, id.Incarnation, id.Cluster,
		s.Term, id.LogStore)
	if d.Last.Index > 0 {
		p.line("# snapshot behind entry %d of term %d", d.Last.Index, d.Last.Term)
		p.members(d.Members)
		p.state(d.State)
	}
	p.line("# log")
	torn, err := s.Entries(func(l *raft.Log, place string) error { return p.entry(r, l, place) })
	if err == nil {
		err = s.CheckWhole(d.Last.Index)
	}
	if err != nil {
		return err
	}
	if torn != "" {
		p.line("# %s a write was interrupted; no client was told that it happened", torn)
	}
	p.line("# good to entry %d of term %d, zxid 0x%x", d.Last.Index, d.Last.Term, d.Zxid())
	return nil
}

func (p *printer) members(c raft.Configuration) {
	for _, s := range c.Servers {
		p.line("member %s %s %s", s.ID, s.Address, strings.ToLower(s.Suffrage.String()))
	}
}

// entry prints one entry of the log. The replay does not apply an entry that the snapshot covers, so
// the outcomes of that entry's requests are not known.
func (p *printer) entry(r *replay, l *raft.Log, place string) error {
	before, outcomes := r.d.Zxid(), &outcomes{}
	err := r.entry(l, place, outcomes)
	switch l.Type {
	case raft.LogConfiguration:
		p.line("entry %d term %d members  (%s)", l.Index, l.Term, place)
		p.members(raft.DecodeConfiguration(l.Data))
		return err
	case raft.LogCommand:
	default:
		p.line("entry %d term %d %s  (%s)", l.Index, l.Term, strings.ToLower(l.Type.String()), place)
		return err
	}
	var lines []string
	at, options, damage := state.ReadEntry(l.Data, func(x *state.Logged) error {
		lines = append(lines, loggedText(x))
		return nil
	})
	what := ""
	if options != 0 {
		what = " " + optionsText(options)
	}
	p.line("entry %d term %d %s%s  (%s)", l.Index, l.Term, clock(at), what, place)
	for i, text := range lines {
		if len(outcomes.list) == len(lines) { // else some had been applied before
			text += outcomes.list[i]
		}
		p.line("  %s", text)
	}
	if err == nil && damage != nil {
		err = fmt.Errorf("%s: log entry %d: %w", place, l.Index, damage)
	}
	if err == nil && r.d.Zxid() != before {
		p.line("  zxid 0x%x", r.d.Zxid())
	}
	return err
}

// outcomes collects the outcomes of the requests of an entry.
type outcomes struct {
	state.Silent
	list []string
}

func (o *outcomes) Outcome(_, _ uint32, _ uint64, out *state.Outcome) {
	switch {
	case out.Refused:
		o.list = append(o.list, " -> refused: its session was gone or elsewhere")
	case out.Code != 0:
		o.list = append(o.list, " -> "+out.Code.Error())
	default:
		o.list = append(o.list, fmt.Sprintf(" -> ok 0x%x", out.Zxid))
	}
}

// state prints a state of zlockd.
func (p *printer) state(s *state.State) {
	p.line("cluster %s zxid 0x%x digest %016x nodes %d bytes %d sessions %d", s.ClusterID(), s.Zxid(),
		s.Digest(), s.Tree().Count(), s.Tree().Bytes(), s.Sessions().Len())
	for _, m := range s.Members() {
		birth, _, last := s.Stream(m.ID)
		p.line("server %d incarnation %s peer %s client %s stream %d request %d", m.ID, m.Incarnation, m.PeerAddr,
			m.ClientAddr, birth, last)
	}
	s.Sessions().All(func(x session.Session) {
		p.line("session 0x%x timeout %dms generation %d server %d address %s created %s", uint64(x.ID), x.Timeout,
			x.Gen, x.Owner, x.Addr, clock(x.Created))
	})
	if p.nodes {
		s.Tree().Walk(func(path string, i tree.Info) bool {
			p.node(path, &i)
			return true
		})
	}
}

func (p *printer) node(path string, n *tree.Info) {
	p.line("node %q %s data %s acl %s czxid 0x%x mzxid 0x%x pzxid 0x%x ctime %s mtime %s version %d "+
		"created-children %d aversion %d",
		path, showKind(n), showData(n.Data), showACL(n.ACL), n.Czxid, n.Mzxid, n.Pzxid, clock(n.Ctime),
		clock(n.Mtime), n.Version, n.Counter, n.Aversion)
}

func (p *printer) zooSnapshot(path string) error {
	t, r, err := loadSnapshot(path, zxidOf(path, "snapshot"))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.line("zxid 0x%x nodes %d sessions %d acls %d", t.Zxid, t.Nodes.Count(), len(t.Sessions), r.ACLs())
	if r.Digest != nil {
		p.line("digest %x of zxid 0x%x, version %d", r.Digest.Sum, r.Digest.Zxid, r.Digest.Version)
	}
	for _, id := range slices.SortedFunc(maps.Keys(t.Sessions), compareIDs) {
		p.line("session 0x%x timeout %dms", uint64(id), t.Sessions[id])
	}
	if p.nodes {
		nodes := contentOf(path, t.Zxid, t.Nodes.Tree).Nodes
		for _, path := range slices.Sorted(maps.Keys(nodes)) {
			p.node(path, nodes[path])
		}
	}
	return nil
}

func (p *printer) zooLog(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return readable(err)
	}
	defer f.Close()
	r, err := zkfiles.NewLogReader(f)
	if errors.Is(err, io.EOF) {
		p.line("# empty")
		return nil
	}
	for err == nil {
		var x *zkfiles.Txn
		if x, err = r.Next(); err == nil {
			p.txn(x, r.Offset())
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.line("# good to the end")
	return nil
}

func (p *printer) txn(x *zkfiles.Txn, at int64) {
	digest := ""
	if x.Digest != nil {
		digest = fmt.Sprintf(" digest %x", x.Digest.Sum)
	}
	p.line("txn 0x%x %s session 0x%x cxid %d %s%s  (at byte %d)", x.Zxid, clock(x.Time), uint64(x.Session),
		x.Cxid, opName(x.Type), digest, at)
	for i := range x.Ops {
		p.line("  %s", opText(&x.Ops[i]))
	}
}

// zooDir prints every file that counts, then applies the logs to the newest
// snapshot.
func (p *printer) zooDir(dir string) error {
	sub := versionDir(dir)
	var errs []error
	for _, kind := range []string{"snapshot", "log"} {
		files, err := list(sub, kind)
		if err != nil {
			return err
		}
		for _, f := range files {
			p.line("# %s", filepath.Base(f.path))
			if kind == "snapshot" {
				err = p.zooSnapshot(f.path)
			} else {
				err = p.zooLog(f.path)
			}
			if err != nil {
				p.line("# DAMAGED: %v", err)
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	z, err := LoadZooKeeper(ZooKeeperOptions{From: dir})
	if err != nil {
		return err
	}
	for _, n := range z.Notes {
		p.line("# %s", n)
	}
	p.line("# good to zxid 0x%x: nodes %d sessions %d", z.Zxid, z.Nodes.Count(), len(z.Sessions))
	return nil
}
