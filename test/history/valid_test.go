package history

import (
	"flag"
	"testing"
	"time"
)

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
