package history

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// corruptions change a history at record i, if that record is of their kind.
var corruptions = map[string]func(rnd *rand.Rand, records []Record, i int) ([]Record, bool){
	"event dropped": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		if e := records[i].Event; e == nil || !followed(records, i) {
			return nil, false
		}
		return slices.Delete(records, i, i+1), true
	},
	"event doubled": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		if records[i].Event == nil || records[i].Event.Zxid <= 0 {
			return nil, false
		}
		return slices.Insert(records, i, records[i]), true
	},
	"event delayed": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		e := records[i].Event
		if e == nil || e.Zxid <= 0 {
			return nil, false
		}
		for j := i + 1; j < len(records); j++ {
			if o := records[j].Op; o != nil && !o.Unknown && o.Conn == e.Conn && o.Op != jute.OpCloseSession {
				return slices.Insert(slices.Delete(records, i, i+1), j, Record{Event: e}), true
			}
		}
		return nil, false
	},
	"data changed": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			o.Value = []byte("wrong")
			return o.Op == jute.OpGetData && o.Code == jute.OK
		})
	},
	"stat changed": func(rnd *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			if o.Stat == nil {
				return false
			}
			st := *o.Stat
			switch o.Stat = &st; rnd.IntN(9) {
			case 0:
				st.Version++
			case 1:
				st.Version--
			case 2:
				st.Cversion++
			case 3:
				st.Pzxid--
			case 4:
				st.Mzxid--
			case 5:
				st.Czxid--
			case 6:
				st.NumChildren++
			case 7:
				st.EphemeralOwner++
			case 8:
				st.Aversion++
			}
			return true
		})
	},
	"child hidden": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			if len(o.Children) == 0 {
				return false
			}
			o.Children = o.Children[1:]
			return true
		})
	},
	"child made up": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			o.Children = append(slices.Clone(o.Children), "n-9999999999")
			return o.Op == jute.OpGetChildren2 && o.Code == jute.OK
		})
	},
	"node denied": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			was := o.Code
			o.Code, o.Stat = jute.NoNode, nil
			return was == jute.OK && (o.Op == jute.OpExists || o.Op == jute.OpGetData || o.Op == jute.OpGetChildren2)
		})
	},
	"stale read": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			o.Zxid -= 5
			return o.Op == jute.OpSync && o.Zxid > 0
		})
	},
	"ping behind the state": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			last := int64(0) // the last zxid on the connection
			for _, r := range records[:i] {
				if r.Op != nil && !r.Op.Unknown && r.Op.Conn == o.Conn {
					last = max(last, r.Op.Zxid)
				}
			}
			o.Zxid = last - 1
			return o.Op == jute.OpPing && last > 0
		})
	},
	"write forgotten": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		return altered(records, i, func(o *Op) bool {
			was := o.Code
			o.Code = jute.NoAuth
			return was == jute.OK && o.Op == jute.OpSetData && o.Path == "/a"
		})
	},
	"two writes swapped": func(_ *rand.Rand, records []Record, i int) ([]Record, bool) {
		o := records[i].Op
		if o == nil || o.Unknown || o.Code != jute.OK || o.Op != jute.OpSetData {
			return nil, false
		}
		for j := i + 1; j < len(records); j++ {
			p := records[j].Op
			if p != nil && !p.Unknown && p.Code == jute.OK && p.Op == jute.OpSetData && p.Start > o.End {
				a, b := *o, *p
				a.Zxid, b.Zxid = b.Zxid, a.Zxid
				records[i].Op, records[j].Op = &a, &b
				return records, true
			}
		}
		return nil, false
	},
}

// followed() tells whether a reply comes after record i on its connection.
func followed(records []Record, i int) bool {
	return slices.ContainsFunc(records[i+1:], func(r Record) bool {
		return r.Op != nil && !r.Op.Unknown && r.Op.Conn == records[i].Event.Conn && r.Op.Op != jute.OpCloseSession
	})
}

func altered(records []Record, i int, f func(*Op) bool) ([]Record, bool) {
	if records[i].Op == nil || records[i].Op.Unknown {
		return nil, false
	}
	o := *records[i].Op
	if !f(&o) {
		return nil, false
	}
	records[i].Op = &o
	return records, true
}

// TestEveryCorruptionIsFound changes a correct history in one place. Without lost answers nothing in a
// history is uncertain, so the checker must find each change.
func TestEveryCorruptionIsFound(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for _, name := range sorted(corruptions) {
		for _, lossy := range []bool{false, true} {
			found, tried := 0, 0
			for seed := range seeds {
				rnd := rand.New(rand.NewPCG(seed, 9))
				right := newFakeCluster(seed, lossy).run(600)
				for range 100 {
					records, ok := corruptions[name](rnd, slices.Clone(right), rnd.IntN(len(right)))
					if !ok {
						continue
					}
					tried++
					if len(Check(records, Options{})) > 0 {
						found++
					} else if !lossy {
						t.Errorf("%s, seed %d: not found", name, seed)
					}
					break
				}
			}
			t.Log(fmt.Sprintf("%s, lossy %v:", name, lossy), found, "of", tried)
			expect.That(t, found*10 >= tried*8,
				"%s, lossy %v: only %d of %d found", name, lossy, found, tried)
		}
	}
}

var savedFlag = flag.String("history.file", "", "a saved history to check")

// TestSavedHistory checks a history that a simulation saved.
func TestSavedHistory(t *testing.T) {
	if *savedFlag == "" {
		t.Skip("no -history.file given")
	}
	records := must.Get(Load(*savedFlag))(t)
	for _, v := range Check(records, Options{Root: "/w"}) {
		t.Error(v)
	}
}

func TestHistoryIsSavedAndLoadedWhole(t *testing.T) {
	records := newFakeCluster(1, true).run(500)
	path := filepath.Join(t.TempDir(), "history")
	must.OK(t, Save(path, records))
	again := must.Get(Load(path))(t)
	expect.That(t, reflect.DeepEqual(records, again), "what was loaded differs from what was saved")
}

var (
	validFrom  = flag.Uint64("history.from", 0, "the first seed of right histories that are made up")
	validSeeds = flag.Uint64("history.seeds", 40, "how many right histories of each kind are made up")
)

func TestRightHistoriesPass(t *testing.T) {
	seeds := *validSeeds
	if testing.Short() {
		seeds = min(seeds, 10)
	}
	for _, lossy := range []bool{false, true} {
		for seed := *validFrom; seed < *validFrom+seeds; seed++ {
			f := newFakeCluster(seed, lossy)
			f.flat = seed%2 == 1
			records := f.run(1500)
			if bad := Check(records, Options{}); len(bad) > 0 {
				for _, v := range bad[:min(len(bad), 5)] {
					t.Log(v)
				}
				t.Fatalf("seed %d, lossy %v: %d violations", seed, lossy, len(bad))
			}
		}
	}
}

func TestLargeHistoryIsFast(t *testing.T) {
	records := newFakeCluster(1, true).run(50_000)
	start := time.Now()
	if bad := Check(records, Options{}); len(bad) > 0 {
		t.Fatal(bad[0])
	}
	t.Logf("%d records in %v", len(records), time.Since(start))
}
