package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leashed is a variable in the environment of all that the tests start, however
// far down. Guards, COMMANDs and what scripts leave in the background have
// process groups and sessions of their own; this they keep.
const leashed = "ZLOCK_TEST_RUN"

// leash starts a process that waits for this one's end, of whatever kind, and
// then kills what is left of the tests.
func leash() (stop func(), err error) {
	const script = `cat >/dev/null
for p in /proc/[0-9]*; do
	tr '\0' '\n' <$p/environ 2>/dev/null | grep -qx "$1" && kill -9 ${p#/proc/}
done`
	mark := fmt.Sprintf("%s=%d-%d", leashed, os.Getpid(), time.Now().UnixNano())
	cmd := exec.Command("sh", "-c", script, "leash", mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	name, value, _ := strings.Cut(mark, "=")
	os.Setenv(name, value)
	return func() { in.Close(); cmd.Wait() }, nil
}

// leftovers are the processes of the tests that run on, apart from the server.
func leftovers(within time.Duration) (list []string) {
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		list = nil
		for _, p := range marked(os.Getenv(leashed)) {
			if !strings.Contains(p, "/zlockd ") && !strings.Contains(p, "zookeeper") {
				list = append(list, p)
			}
		}
		if len(list) == 0 || time.Now().After(end) {
			return list
		}
	}
}

// marked lists what a run of the tests has started and still runs.
func marked(run string) (list []string) {
	mark := []byte(leashed + "=" + run + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && pid != os.Getpid() && bytes.Contains(env, mark) && processAlive(pid) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			list = append(list, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return list
}
