package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The commands of docs/why.md show what the page says. The page gives each program a second to start. On a
// busy machine this may be too short, so a block is tried again.
func TestCommandsThatShowWhyLocksFail(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for sessions to end: make test-all")
	}
	t.Parallel()
	page := string(must.Get(os.ReadFile("../../docs/why.md"))(t))
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1)
	says := []func(out string) error{
		matches(`(?s)\n\* +W .*\n1 +W .*\nnext\n`),
		func(out string) error {
			if before, after, found := strings.Cut(out, "next\n"); !found || !strings.Contains(before, "works") ||
				strings.Contains(after, "works") {
				return errors.New("the paused holder's COMMAND worked after the next holder's began")
			}
			return nil
		},
		matches(`(?s)\nPATH +/jobs/nightly .*\n\* +W `),
	}
	must.Equal(t, len(blocks), len(says), "number of blocks")
	for i, says := range says {
		err := follow(t, blocks[i][1], says)
		for try := 2; err != nil && try < 5; try++ {
			t.Log(err)
			err = follow(t, shortPauses.ReplaceAllStringFunc(blocks[i][1], func(pause string) string {
				return fmt.Sprintf("sleep $((%s*%d))", strings.TrimPrefix(pause, "sleep "), 2*try)
			}), says)
		}
		expect.OK(t, err, "block %d", i+1)
	}
}

// shortPauses are the waits for programs that start. They become longer with each try.
var shortPauses = regexp.MustCompile(`sleep [12]\b`)

func matches(pattern string) func(out string) error {
	return func(out string) error {
		if !regexp.MustCompile(pattern).MatchString("\n" + out) {
			return fmt.Errorf("it does not say %s", pattern)
		}
		return nil
	}
}

// follow runs a block of commands in a new directory, with a port of its own, and ends all that it started.
func follow(t *testing.T, block string, says func(out string) error) error {
	t.Helper()
	addr := must.Get(cluster.FreePorts(1))(t)[0]
	dir := t.TempDir()
	out := must.Get(os.Create(filepath.Join(dir, "out")))(t)
	defer out.Close()
	cmd := exec.Command("sh", "-c", block)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cluster.Zlock(t))+":"+filepath.Dir(cluster.Build(t))+":"+
		os.Getenv("PATH"), "NO_COLOR=1", "ZLOCKD_CLIENT_ADDR="+addr, "ZLOCKD_ADMIN_ADDR=off", "ZLOCKD_TICKET_ADDR=off",
		"ZLOCK_SERVERS="+addr)
	must.OK(t, cmd.Start())
	timer := time.AfterFunc(40*time.Second, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	must.Await(t, "all processes have ended", 30*time.Second, func() bool {
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == syscall.ESRCH
	})
	text := string(must.Get(os.ReadFile(out.Name()))(t))
	if err == nil {
		err = says(text)
	}
	if err != nil {
		return fmt.Errorf("%s%w\n%s", block, err, text)
	}
	return nil
}
