package manage

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// A backup without its last byte is refused, in whichever way the connection ended.
func TestBackupCutShortIsRefused(t *testing.T) {
	var file bytes.Buffer
	snap := state.New("c").StartSnapshot(state.Position{Index: 7, Term: 3})
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	snap.Close()
	for n := range file.Len() + 1 {
		got, arrived := fetched{format: "zlockd"}, new(bytes.Buffer)
		err := got.copy(arrived, bytes.NewReader(file.Bytes()[:n]))
		whole := n == file.Len()
		if whole != (err == nil) || whole && !bytes.Equal(arrived.Bytes(), file.Bytes()) {
			t.Errorf("%d of %d bytes: %v", n, file.Len(), err)
		} else if !whole && !strings.Contains(err.Error(), "damaged or incomplete") {
			t.Errorf("%d of %d bytes: said is %v", n, file.Len(), err)
		}
	}
	expect.Fails(t, new(fetched).copy(io.Discard, strings.NewReader("HTTP")),
		"anything is a ZooKeeper's snapshot")
}

// A signal ends a restore that waits for the user's answer.
func TestRestoreIsInterruptedAtItsQuestion(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil || !call.IsTerminal(tty) {
		t.Skipf("no terminal to ask at: %v", err)
	}
	defer tty.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&call.SignalError{Sig: syscall.SIGINT})
	c := &call.Call{App: &call.App{Stdin: tty, Stderr: io.Discard}, Call: &cli.Call{Args: []string{"backup"}}}
	err = confirm(ctx, c, &state.Backup{}, "0123456789abcdef", false, "")
	expect.That(t, cli.HasCode(err, supervise.SignalCode(syscall.SIGINT)), "%v", err)
}

// ZooKeeper may write snapshots without a digest. Such a snapshot does not contain its zxid.
func TestSnapshotWithoutADigest(t *testing.T) {
	var whole bytes.Buffer
	w, err := zkfiles.NewSnapshotWriter(&whole, -1, nil, [][]jute.ACL{jute.WorldAnyone})
	if err == nil {
		err = w.Node("/", &tree.Info{Data: []byte{}, ACL: jute.WorldAnyone})
	}
	if err == nil {
		err = w.Close(5)
	}
	must.OK(t, err)
	const digest = 8 + 4 + 8 + 8 + 5 // zxid, version and digest, then the checksum and the end mark of this part
	for _, without := range []int{0, digest} {
		got := fetched{format: "zookeeper"}
		err := got.copy(io.Discard, bytes.NewReader(whole.Bytes()[:whole.Len()-without]))
		if (err == nil) != (without == 0) || got.nodes != 1 || err == nil && got.zxid != 5 {
			t.Errorf("without %d bytes: %+v, %v", without, got, err)
		}
	}
}
