package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Ctrl-C ends zlock and COMMAND at any moment of their start, and says so by the
// exit code: it is neither lost nor taken for a failure.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	for i := range 30 {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", fmt.Sprintf("/interrupted-%d",
			i%3), "--", "sleep", "1000")
		cmd.Env = scriptEnv(t)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must.OK(t, cmd.Start())
		time.Sleep(rand.N(80 * time.Millisecond)) // some moment
		syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		watchdog := time.AfterFunc(30*time.Second, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		err := cmd.Wait()
		watchdog.Stop()
		var exit *exec.ExitError
		must.That(t, errors.As(err, &exit), "%v", err)
		status := exit.Sys().(syscall.WaitStatus)
		if !(status.Signaled() && status.Signal() == syscall.SIGINT) && status.ExitStatus() != 130 {
			t.Errorf("round %d: %v\n%s", i, err, stderr.String())
		}
	}
}

// When the servers are gone there is nobody to wait for at the end.
func TestLossWithDeadServersEndsAtOnce(t *testing.T) {
	t.Parallel()
	var server string
	for _, kv := range scriptEnv(t) {
		if s, ok := strings.CutPrefix(kv, "ZLOCK_SERVERS="); ok {
			server, _, _ = strings.Cut(s, "/")
		}
	}
	p := must.Get(faultproxy.New(server))(t)
	defer p.Close()
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "-S", p.Addr(), "--session-timeout", "5", "-k",
		"0.1", "/dead-servers", "--",
		"sh", "-c", "echo up; trap 'echo told; exit 0' TERM; while :; do sleep .05; done")
	cmd.Env = scriptEnv(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	line := make([]byte, 100)
	out.Read(line)
	p.Close()
	n, _ := out.Read(line) // the loss is told
	told := time.Now()
	cmd.Wait()
	if took := time.Since(told); cmd.ProcessState.ExitCode() != exitLost || took > 4*time.Second ||
		strings.Contains(stderr.String(), "deadline exceeded") {
		t.Fatalf("%q, then exit code %d after %v:\n%s", line[:n], cmd.ProcessState.ExitCode(), took,
			stderr.String())
	}
}
