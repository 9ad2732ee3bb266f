package tree_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// write applies one create or delete.
func (s *pieces) write(session int64, op jute.OpCode, body []byte) bool {
	s.zxid++
	c := tree.Change{Zxid: s.zxid, Session: session}
	_, code, _ := s.t.Apply(&c, op, body, nil)
	return code == jute.OK
}

type pieces struct {
	t    *tree.Tree
	zxid int64
}

func (s *pieces) create(session int64, path string, flags int32) bool {
	b := jute.AppendString(nil, path)
	b = jute.AppendInt(b, -1)
	b = jute.AppendACL(b, jute.WorldAnyone)
	return s.write(session, jute.OpCreate, jute.AppendInt(b, flags))
}

func (s *pieces) remove(path string) bool {
	return s.write(1, jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
}

// TestWalksInPiecesMissNothing changes the tree between the pieces: what was
// there before the walk and is there after it was met.
func TestWalksInPiecesMissNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &pieces{t: tree.New()}
		live, stayed := map[string]bool{}, map[string]bool{}
		s.create(1, "/d", 0)
		step := func() {
			path := fmt.Sprintf("/d/%d", r.IntN(60))
			if live[path] && r.IntN(2) == 0 {
				if s.remove(path) {
					delete(live, path)
					delete(stayed, path)
				}
			} else if s.create(int64(1+r.IntN(8)), path, 1) {
				live[path] = true
			}
		}
		for range 100 {
			step()
		}
		for p := range live {
			stayed[p] = true
		}
		metOwned, metChild := map[string]bool{}, map[string]bool{}
		var w tree.EphemeralWalk
		var c tree.ChildWalk
		dir, _ := s.t.Find("/d")
		for more, again := true, true; more || again; {
			more = more && w.Next(s.t, 1+r.IntN(5), func(n tree.Ref) int { metOwned[n.Path()] = true; return 1 })
			again = again && c.Next(dir, 1+r.IntN(5), func(n tree.Ref) int { metChild[n.Path()] = true; return 1 })
			for range r.IntN(4) {
				step()
			}
		}
		must.OK(t, s.t.Verify())
		for p := range stayed {
			if !metOwned[p] || !metChild[p] {
				t.Fatalf("seed %d: %s was not met (owned %v, child %v)", seed, p, metOwned[p], metChild[p])
			}
		}
	}
}
