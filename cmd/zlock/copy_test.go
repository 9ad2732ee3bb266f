package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// A backup is taken for whole only if its last byte has come, however the
// connection ended.
func TestBackupCutShortIsRefused(t *testing.T) {
	var file bytes.Buffer
	snap := state.New("c").StartSnapshot(state.Position{Index: 7, Term: 3})
	if err := snap.Write(&file, func(read func()) { read() }); err != nil {
		t.Fatal(err)
	}
	snap.Close()
	for n := range file.Len() + 1 {
		got, arrived := fetched{format: "zlockd"}, new(bytes.Buffer)
		err := got.copy(arrived, bytes.NewReader(file.Bytes()[:n]))
		if whole := n == file.Len(); whole != (err == nil) || whole && !bytes.Equal(arrived.Bytes(), file.Bytes()) {
			t.Errorf("%d of %d bytes: %v", n, file.Len(), err)
		} else if !whole && !strings.Contains(err.Error(), "damaged or not whole") {
			t.Errorf("%d of %d bytes: said is %v", n, file.Len(), err)
		}
	}
	if err := new(fetched).copy(io.Discard, strings.NewReader("HTTP")); err == nil {
		t.Error("anything is a ZooKeeper's snapshot")
	}
}
