package history

import (
	"flag"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var savedFlag = flag.String("history.file", "", "a saved history to check")

// TestSavedHistory checks a history that a simulation has left behind, again.
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
