package history

import (
	"flag"
	"path/filepath"
	"reflect"
	"testing"
)

var savedFlag = flag.String("history.file", "", "a saved history to check")

// TestSavedHistory checks a history that a simulation has left behind, again.
func TestSavedHistory(t *testing.T) {
	if *savedFlag == "" {
		t.Skip("no -history.file given")
	}
	records, err := Load(*savedFlag)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Check(records, Options{Root: "/w"}) {
		t.Error(v)
	}
}

func TestHistoryIsSavedAndLoadedWhole(t *testing.T) {
	records := newFakeCluster(1, true).run(500)
	path := filepath.Join(t.TempDir(), "history")
	if err := Save(path, records); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(records, again) {
		t.Error("what was loaded differs from what was saved")
	}
}
