package data

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/offline"
)

// The objects that data commands print with -o json, one in a line. docs/data.md describes them. A later
// version may add fields, but changes none.

// madeAnswer is the answer of the commands `import`, `export` and `restore`.
type madeAnswer struct {
	Command string `json:"command"`
	Path    string `json:"path"`
	Zxid    string `json:"zxid"`
	*offline.Made
	Seconds float64 `json:"seconds"`
}

func hexZxid(zxid int64) string { return fmt.Sprintf("0x%x", zxid) }

// sideAnswer describes one of the two sets of data that `verify` compares.
type sideAnswer struct {
	Name  string `json:"name"`
	Zxid  string `json:"zxid"`
	Nodes int    `json:"nodes"`
}

type verifyAnswer struct {
	Command     string     `json:"command"`
	Equal       bool       `json:"equal"`
	A           sideAnswer `json:"a"`
	B           sideAnswer `json:"b"`
	Differences []string   `json:"differences"`
	Ended       []string   `json:"ended,omitempty"` // ephemeral nodes that only one of the two has
}

func sideOf(c *offline.Content) sideAnswer { return sideAnswer{c.Name, hexZxid(c.Zxid), len(c.Nodes)} }

type recoverAnswer struct {
	Command   string   `json:"command"`
	Path      string   `json:"path"`
	Done      bool     `json:"done"`
	Server    uint32   `json:"server,omitempty"`
	Cluster   string   `json:"cluster,omitempty"`
	Index     uint64   `json:"index,omitempty"`
	Term      uint64   `json:"term,omitempty"`
	Zxid      string   `json:"zxid,omitempty"`
	LostAfter string   `json:"lostAfter,omitempty"`
	New       string   `json:"newCluster,omitempty"`
	Nodes     int      `json:"nodes,omitempty"`
	Sessions  int      `json:"sessions,omitempty"`
	Next      []string `json:"next,omitempty"`
}

func recoveryOf(dir string, r *offline.Recovery) recoverAnswer {
	a := recoverAnswer{Command: "recover", Path: dir, Server: r.Identity.Server,
		Cluster: r.Identity.Cluster,
		Index:   r.Last.Index, Term: r.Last.Term, Zxid: hexZxid(r.Zxid())}
	if r.LastTime > 0 {
		a.LostAfter = time.UnixMilli(r.LastTime).UTC().Format(time.RFC3339Nano)
	}
	return a
}

// answer() prints the object with -o json. Otherwise it prints nothing, because the command has printed text.
func (c *Call) answer(v any) error {
	if !c.json {
		return nil
	}
	return cli.WriteJSON(c.Stdout, v)
}
