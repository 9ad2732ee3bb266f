package history

import (
	"testing"
	"time"
)

func TestRightHistoriesPass(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for _, lossy := range []bool{false, true} {
		for seed := range seeds {
			records := newFakeCluster(seed, lossy).run(1500)
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
