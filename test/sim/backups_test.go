package sim

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/tree"
)

// backupKinds take backups beside the faults of a run.
var backupKinds = []fault{
	{"backup", 6, (*faults).backup},
}

// backup asks a server for a backup and records it, if the server serves.
func (f *faults) backup(id uint32) {
	slow := f.upTo(300 * time.Millisecond)
	i := f.server(id)
	if f.idle = i == nil; !f.idle {
		f.wg.Go(func() {
			if b := f.takeBackup(i, id, slow); b != nil {
				f.rec.Add(history.Record{Backup: &b.Backup})
			}
		})
	}
}

// slowly is a client of the admin port that takes some time for every piece of an answer.
type slowly struct {
	*httptest.ResponseRecorder
	pause time.Duration
}

func (s *slowly) Write(b []byte) (int, error) {
	time.Sleep(s.pause)
	return s.ResponseRecorder.Write(b)
}

// takeBackup asks a server for a backup as an operator does. It returns nil if the server refuses. It checks
// that the backup can be read, and compares its digest with the servers that are at its zxid. The history
// checker can judge what the backup holds.
func (c *cluster) takeBackup(i *server.Instance, id uint32, slow time.Duration) *backedUp {
	beside := map[uint32]uint64{}
	h := &backup.Handler{Source: func() backup.Source { return noting{i.Node(), c, beside} }, Log: logger(id),
		Authorize: func(string, string) bool { return true }}
	ask := httptest.NewRequest(http.MethodGet, "/commands/snapshot?format=zlockd", nil)
	ask.Header.Set("Authorization", "digest super:test")
	out := &slowly{httptest.NewRecorder(), slow}
	b := &backedUp{Backup: history.Backup{Server: fmt.Sprint(id), Start: c.rec.clock()}}
	h.ServeHTTP(out, ask)
	b.End, b.file = c.rec.clock(), out.Body.Bytes()
	if out.Code != http.StatusOK {
		return nil
	}
	var err error
	if b.state, _, err = state.ReadSnapshot(bytes.NewReader(b.file)); err != nil {
		c.t.Errorf("G6: a backup of server %d cannot be read: %v", id, err)
		return nil
	}
	b.Zxid = b.state.Zxid()
	if told := out.Header().Get("last_zxid"); told != fmt.Sprintf("0x%x", b.Zxid) {
		c.t.Errorf("G6: a backup of server %d has zxid 0x%x, and was announced with %s", id, b.Zxid, told)
	}
	for other, sum := range beside {
		if is := b.state.Tree().Digest(); is != sum {
			c.t.Errorf("G26: a backup of server %d has the digest %016x of nodes at zxid 0x%x, and server %d %016x",
				id, is, b.Zxid, other, sum)
		}
	}
	b.state.Tree().Walk(func(path string, n tree.Info) bool {
		if path == Root || strings.HasPrefix(path, Root+"/") {
			b.Nodes = append(b.Nodes, history.BackupNode{Path: path, Stat: n.Stat, Data: n.Data, ACL: n.ACL})
		}
		return true
	})
	return b
}

// backedUp is a backup that was taken.
type backedUp struct {
	history.Backup
	file  []byte
	state *state.State
}

// noting is a server that gives a backup. At that moment it notes the digests of the nodes of all servers that
// are at the zxid of the backup. The digest of a whole state also counts sessions that were attached, and an
// attach changes no zxid, so two servers can differ in it.
type noting struct {
	*raftfsm.Node
	c      *cluster
	beside map[uint32]uint64 // by server
}

func (n noting) Backup(ctx context.Context) (*apply.Backup, error) {
	b, err := n.Node.Backup(ctx)
	if err != nil {
		return nil, err
	}
	for id := range n.c.ids() {
		if i := n.c.server(id); i != nil {
			i.Node().View(func(s *state.State) {
				if s.Zxid() == b.Zxid {
					n.beside[id] = s.Tree().Digest()
				}
			})
		}
	}
	return b, nil
}
