package tree_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/rights"
	"github.com/zlockd/zlockd/tree"
)

// programLength returns the number of operations of all random programs. ZLOCKD_TREE_OPS raises it.
func programLength(t *testing.T) int {
	s := os.Getenv("ZLOCKD_TREE_OPS")
	switch {
	case s == "" && testing.Short():
		return 20_000
	case s == "":
		return 200_000
	}
	n := must.Get(strconv.Atoi(s))(t)
	return n
}

// programSeed returns the seed of a random test; ZLOCKD_SEED sets it.
func programSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ZLOCKD_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must.OK(t, err)
	}
	t.Logf("ZLOCKD_SEED=%d", seed)
	return seed
}

// A random program must get the same replies and events from the tree and from the model. From time to time
// their content is compared, too. A second tree, the twin, makes the same changes and must always equal the
// first. Sometimes a tree that was loaded from a snapshot of the twin takes the twin's place.
func TestTreeDoesWhatTheModelDoes(t *testing.T) {
	race.Alone(t)
	const program = 2000 // operations until a fresh start
	seed := programSeed(t)
	for done := 0; done < programLength(t); done += program {
		r := newRun(t, seed)
		for i := range program {
			r.step()
			if i%97 == 0 {
				r.check()
			}
		}
		r.check()
		seed++
	}
}

// run is one random program.
type run struct {
	*testing.T
	g     *Gen
	seed  uint64
	step0 int
	zxid  int64
	now   int64
	tree  *tree.Tree
	twin  *tree.Tree
	model *Model
	snap  *tree.Snapshot
	load  *tree.Loader
	taken string // content of the tree when `snap` was started
}

func newRun(t *testing.T, seed uint64) *run {
	return &run{T: t, g: NewGen(seed), seed: seed, tree: tree.New(), twin: tree.New(),
		model: NewModel()}
}

func (r *run) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("ZLOCKD_SEED=%d, step %d: %s", r.seed, r.step0, fmt.Sprintf(format, args...))
}

// change() returns the same change for the tree, its twin and the model.
func (r *run) change() (a, b, c tree.Change) {
	a = tree.Change{Zxid: r.zxid + 1, Time: r.now, Session: int64(r.g.IntN(4)), IDs: r.g.Identities(),
		NoQuota: r.g.IntN(5) == 0, NoTTL: r.g.IntN(20) == 0, OneLayout: r.g.IntN(3) > 0}
	return a, a, a
}

func (r *run) step() {
	r.step0++
	r.now += int64(r.g.IntN(100))
	a, b, m := r.change()
	changed := true
	switch r.g.IntN(60) {
	case 0:
		s := int64(r.g.IntN(4))
		r.tree.CloseSession(&a, s)
		r.twin.CloseSession(&b, s)
		r.model.CloseSession(&m, s)
	case 1:
		changed = r.reap(&a, &b, &m)
	case 2:
		text := r.g.Data()
		r.tree.SetConfig(&a, text)
		r.twin.SetConfig(&b, text)
		r.model.SetConfig(&m, append([]byte{}, text...))
	case 3:
		p, cv := r.g.Path(), int32(r.g.Uint32())
		if x, y, z := r.tree.SetCounter(p, cv), r.twin.SetCounter(p, cv), r.model.SetCounter(modelPath(p),
			cv); x != z || y != z {
			r.fail("SetCounter %q: %v, %v, the model %v", p, x, y, z)
		}
		changed = false
	default:
		changed = r.apply(&a, &b, &m)
	}
	if !SameEvents(a.Events, m.Events) {
		r.fail("events\n%v\nthe model's\n%v", a.Events, m.Events)
	}
	if changed {
		r.zxid++
	}
	r.read()
	r.snapshot()
}

// modelPath turns "", which also names the root, into "/", because the model knows only "/".
func modelPath(p string) string {
	if p == "" {
		return "/"
	}
	return p
}

func (r *run) apply(a, b, m *tree.Change) bool {
	op, body := r.g.Op()
	input := slices.Clone(body)
	prefix := []byte("before")
	out, code, changed := r.tree.Apply(a, op, body, prefix)
	out2, code2, changed2 := r.twin.Apply(b, op, slices.Clone(input), prefix)
	want, wantCode, wantChanged := r.model.Apply(m, op, slices.Clone(input), prefix)
	if code != wantCode || changed != wantChanged || !bytes.Equal(out, want) {
		r.fail("%v %q\n%q %v %v\nthe model\n%q %v %v", op, input, out, code, changed, want, wantCode, wantChanged)
	}
	if code != code2 || changed != changed2 || !bytes.Equal(out, out2) {
		r.fail("%v %q: the trees differ", op, input)
	}
	if !bytes.Equal(body, input) {
		r.fail("%v changed its body", op)
	}
	for i := range body { // overwrite the request, because the tree must not share its memory
		body[i] = '#'
	}
	return changed
}

func (r *run) reap(a, b, m *tree.Change) bool {
	list, _ := r.tree.Reapable(r.now, 0, 3, nil)
	if len(list) == 0 || r.g.IntN(4) == 0 {
		list = []string{r.g.Path()}
	}
	p := list[0]
	x, y, z := r.tree.Reap(a, p, r.now), r.twin.Reap(b, p, r.now), r.model.Reap(m, modelPath(p), r.now)
	if x != y || x != z {
		r.fail("Reap %q: %v, %v, the model %v", p, x, y, z)
	}
	return x
}

// read() compares all reads of a random path.
func (r *run) read() {
	p, ids := r.g.Path(), r.g.Identities()
	n, ok := r.model.Nodes[modelPath(p)]
	stat := r.model.Stat(modelPath(p))
	want := func(perm int32) jute.ErrCode {
		switch {
		case !ok:
			return jute.NoNode
		case !rights.Allowed(n.ACL, ids, perm):
			return jute.NoAuth
		}
		return jute.OK
	}
	b, code := r.tree.AppendData(nil, ids, p)
	if code != want(jute.PermRead) || code == jute.OK &&
		!bytes.Equal(b, jute.AppendStat(jute.AppendBuffer(nil, n.Data), &stat)) {
		r.fail("getData %q: %q %v", p, b, code)
	}
	b, code = r.tree.AppendChildren(nil, ids, p)
	if code != want(jute.PermRead) || code == jute.OK &&
		!slices.Equal(Names(b), r.model.Children(modelPath(p))) {
		r.fail("getChildren %q: %q %v", p, b, code)
	}
}

// snapshot() starts, continues or ends a snapshot of the twin. It replaces the twin by the snapshot if no
// change came in between.
func (r *run) snapshot() {
	switch {
	case r.snap == nil && r.g.IntN(50) == 0:
		r.snap, r.load, r.taken = r.twin.StartSnapshot(), tree.NewLoader(), Dump(r.twin)
		if r.g.IntN(3) == 0 {
			for r.snap != nil {
				r.chunk()
			}
		}
	case r.snap != nil && r.g.IntN(3) == 0:
		r.chunk()
	case r.snap != nil && r.g.IntN(200) == 0:
		r.snap.Close()
		r.snap = nil
	}
}

func (r *run) chunk() {
	b, done := r.snap.Append(nil, 1+r.g.IntN(8))
	if err := r.load.Add(b); err != nil {
		r.fail("%v", err)
	}
	if !done {
		return
	}
	r.snap.Close()
	r.snap = nil
	got, err := r.load.Finish()
	if err != nil {
		r.fail("%v", err)
	}
	if d := Dump(got); d != r.taken {
		r.fail("the snapshot holds\n%s\nand not\n%s", d, r.taken)
	}
	if err := got.Verify(); err != nil {
		r.fail("restored: %v", err)
	}
	if Dump(r.twin) == r.taken && got.Digest() == r.twin.Digest() {
		r.twin = got
	}
}

func (r *run) check() {
	r.Helper()
	if got, want := Dump(r.tree), r.model.Dump(); got != want {
		r.fail("the tree is\n%s\nthe model\n%s", got, want)
	}
	if got, want := Dump(r.twin), Dump(r.tree); got != want ||
		r.tree.Digest() != r.twin.Digest() {
		r.fail("the trees are\n%s\nand\n%s", want, got)
	}
	for _, t := range []*tree.Tree{r.tree, r.twin} {
		if err := t.Verify(); err != nil {
			r.fail("%v", err)
		}
	}
}
