package daemon

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain makes the test binary run as zlockd when a script asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_ZLOCKD_MAIN") != "" {
		os.Exit(Main(os.Args, nil))
	}
	os.Exit(m.Run())
}

// fakeProcess is a server whose events the test decides.
type fakeProcess struct {
	failed chan struct{}
	closed chan struct{} // Close returns when this channel is closed
}

func newFake() *fakeProcess {
	return &fakeProcess{failed: make(chan struct{}), closed: make(chan struct{})}
}

func (p *fakeProcess) Ready(context.Context) (readyLine, error) {
	return readyLine{client: "127.0.0.1:2181", peer: "off", admin: "127.0.0.1:8181", mode: "standalone"}, nil
}

func (p *fakeProcess) Line() string { return "mode standalone" }

func (p *fakeProcess) Change(*settings.Settings, *slog.Logger) (bool, error) { return false, nil }

func (p *fakeProcess) Failed() <-chan struct{} { return p.failed }

func (p *fakeProcess) Close(ctx context.Context) error {
	select {
	case <-p.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startFake runs a daemon around p and returns its signals and exit code.
func startFake(p process, err error) (out *must.Text, signals chan os.Signal, code chan int) {
	out, signals, code = new(must.Text), make(chan os.Signal, 2), make(chan int, 1)
	d := &daemon{stdout: out, stderr: out, signals: signals,
		start: func(context.Context, *settings.Settings, *slog.Logger) (process, error) {
			return p, err
		}}
	go func() { code <- d.program().Main([]string{"--dev", "--log-level", "error"}) }()
	return out, signals, code
}

func TestReadyLine(t *testing.T) {
	p := newFake()
	out, signals, code := startFake(p, nil)
	out.Await(t, "\n")
	want := "zlockd ready client=127.0.0.1:2181 peer=off admin=127.0.0.1:8181 mode=standalone version=" +
		release.Version() + "\n"
	expect.Equal(t, out.String(), want)
	close(p.closed)
	signals <- syscall.SIGTERM
	expect.Equal(t, <-code, exitOK, "exit")
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	_, signals, code := startFake(newFake(), nil)
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	expect.Equal(t, <-code, exitAtOnce, "exit")
}

func TestFailureOfTheServerEndsTheProcess(t *testing.T) {
	p := newFake()
	_, _, code := startFake(p, nil)
	close(p.failed)
	expect.Equal(t, <-code, exitFailed, "exit")
}

func TestFailedStart(t *testing.T) {
	out, _, code := startFake(nil, errors.New("no such thing"))
	c := <-code
	expect.Equal(t, c, exitFailed, "exit")
	expect.Equal(t, out.String(), "zlockd: no such thing\n", "standard output")
}

func TestSignalDuringTheStart(t *testing.T) {
	signals := make(chan os.Signal, 2)
	d := &daemon{stdout: io.Discard, stderr: io.Discard, signals: signals,
		start: func(ctx context.Context, _ *settings.Settings, _ *slog.Logger) (process, error) {
			signals <- syscall.SIGTERM
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	expect.Equal(t, d.program().Main([]string{"--dev"}), exitOK, "exit")
}

func TestHeapIsCollectedFrom64MegabytesOn(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 1 << 20: 1600, 4 << 20: 1500, 8 << 20: 700, 32 << 20: 100,
		1 << 30: 100} {
		got := gcPercent(live)
		expect.Equal(t, got, want, "with %d MB live the percentage is %d", live>>20, got)
	}
}
