//go:build stock

package stock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// step is one command of a transcript, and what the command prints.
type step struct {
	line     int
	cmd      string
	out, err []string
}

// readTranscript reads a file with lines of the forms ">>> command", "out| text" and "err| text". It first
// replaces words in the file, as `replace` says.
func readTranscript(t *testing.T, file string, replace *strings.Replacer) []step {
	t.Helper()
	b := must.Get(os.ReadFile(file))(t)
	var steps []step
	for i, line := range strings.Split(replace.Replace(string(b)), "\n") {
		if cmd, ok := strings.CutPrefix(line, ">>> "); ok {
			steps = append(steps, step{line: i + 1, cmd: cmd})
			continue
		}
		if strings.HasPrefix(line, "#") || len(steps) == 0 || len(line) < 4 {
			continue
		}
		text := strings.TrimPrefix(line[4:], " ")
		switch s := &steps[len(steps)-1]; line[:4] {
		case "out|":
			s.out = append(s.out, text)
		case "err|":
			s.err = append(s.err, text)
		}
	}
	return steps
}

// cli is a running zkCli.sh that is fed one command at a time.
type cli struct {
	in    io.WriteCloser
	lines chan [2]string // stream, line; closed at the end of both
	cmd   *exec.Cmd
}

// noLogger begins the lines in which the client says that it has no logger. Debian leaves the logger out.
const noLogger = "SLF4J: "

const zkCli = "/usr/share/zookeeper/bin/zkCli.sh"

// cliEnv keeps the short-lived JVMs of the suite cheap.
func cliEnv() []string {
	return append(os.Environ(), "CLIENT_JVMFLAGS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m", "TZ=UTC")
}

func startCli(t *testing.T, args ...string) *cli {
	t.Helper()
	c := &cli{cmd: exec.Command(zkCli, args...), lines: make(chan [2]string, 100)}
	c.cmd.Env = cliEnv()
	var err error
	c.in, err = c.cmd.StdinPipe()
	must.OK(t, err)
	out := must.Get(c.cmd.StdoutPipe())(t)
	errs := must.Get(c.cmd.StderrPipe())(t)
	must.OK(t, c.cmd.Start())
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	done := make(chan bool)
	scan := func(stream string, r io.Reader) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if line := strings.TrimRight(in.Text(), " "); !strings.HasPrefix(line, noLogger) {
				c.lines <- [2]string{stream, line}
			}
		}
		done <- true
	}
	go scan("out", out)
	go scan("err", errs)
	go func() { <-done; <-done; close(c.lines) }()
	return c
}

// collect() reads the output of the current command. It reads as many lines as `want` has, and then more
// until no line comes for a moment. The commands run one after another, so a line that comes too late shows
// as a surplus line of the next command.
func (c *cli) collect(want step) (out, err []string) {
	patience := time.After(90 * time.Second) // the first command waits until Java has started
	settle := 40 * time.Millisecond
	if len(want.out)+len(want.err) == 0 {
		settle = 120 * time.Millisecond
	}
	for {
		var quiet <-chan time.Time
		if len(out) >= len(want.out) && len(err) >= len(want.err) && !endsWithUsage(want.err, err) {
			quiet = time.After(settle)
		}
		select {
		case l, ok := <-c.lines:
			if !ok {
				return out, err
			}
			if l[0] == "out" {
				out = append(out, l[1])
			} else {
				err = append(err, l[1])
			}
		case <-quiet:
			return out, err
		case <-patience:
			return out, err
		}
	}
}

const usageText = "<usage text>"

// endsWithUsage reports whether more output must come: `want` is a usage text and lines after it, and the
// last of these lines has not come yet.
func endsWithUsage(want, got []string) bool {
	return len(want) > 1 && want[0] == usageText && (len(got) == 0 || got[len(got)-1] != want[len(want)-1])
}

// comparison compares what a transcript says with what a client printed.
type comparison struct {
	exactZxids bool
	anyLength  bool       // dataLength may differ
	zxids      [][2]int64 // pairs of a recorded and a seen zxid, both in the same order
	versions   [][2]int64 // pairs of versions of the configuration, which are zxids in a ZooKeeper
}

var (
	timeLine  = regexp.MustCompile(`^([cm]time = ).*`)
	zxidLine  = regexp.MustCompile(`^([cmp]Zxid = 0x|version=)([0-9a-f]+)$`)
	addrList  = regexp.MustCompile(`^([0-9a-f]+) ([0-9.:]+(?:,[0-9.:]+)*)$`)
	cliBuild  = regexp.MustCompile(`^(ZooKeeper CLI version: 3\.[0-9]+\.[0-9]+-).*`)
	nameList  = regexp.MustCompile(`^\[.*\]$`)
	epochTime = "Thu Jan 01 00:00:00 UTC 1970"
)

// differ() returns how `got` differs from `want`. It returns "" if they are equal.
func (c *comparison) differ(want, got step) string {
	if want.cmd == "quit" { // the client may end before it reports that it is closed
		want.out = want.out[:min(len(want.out), len(got.out))]
	}
	wantOut, wantEvents := splitEvents(want.out)
	gotOut, gotEvents := splitEvents(got.out)
	if want.cmd == "whoami" { // the order of identities does not matter
		slices.Sort(wantOut)
		slices.Sort(gotOut)
	}
	for _, p := range []struct {
		what      string
		want, got []string
	}{{"stdout", wantOut, gotOut}, {"stderr", want.err, got.err}, {"events", wantEvents, gotEvents}} {
		if d := c.lines(p.want, p.got); d != "" {
			return fmt.Sprintf("%s: %s\nwant %q\n got %q", p.what, d, p.want, p.got)
		}
	}
	return ""
}

func (c *comparison) lines(want, got []string) string {
	if len(want) > 0 && want[0] == usageText {
		want = want[1:]
		got = got[max(0, len(got)-len(want)):]
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d lines wanted, %d came", len(want), len(got))
	}
	for i := range want {
		if d := c.line(want[i], got[i]); d != "" {
			return d
		}
	}
	return ""
}

func (c *comparison) line(want, got string) string {
	if w, g := zxidLine.FindStringSubmatch(want), zxidLine.FindStringSubmatch(got); w != nil && g != nil &&
		w[1] == g[1] {
		if w[1] == "version=" {
			return c.zxid(&c.versions, w[2], g[2])
		}
		return c.zxid(&c.zxids, w[2], g[2])
	}
	if c.anyLength && strings.HasPrefix(want, "dataLength = ") && strings.HasPrefix(got, "dataLength = ") {
		return ""
	}
	if w, g := addrList.FindStringSubmatch(want), addrList.FindStringSubmatch(got); w != nil && g != nil {
		// Both are outputs of config -c: compare the versions, and the members in any order.
		if sorted(w[2], ",") != sorted(g[2], ",") {
			return fmt.Sprintf("%q wanted, %q came", want, got)
		}
		return c.zxid(&c.versions, w[1], g[1])
	}
	if normalise(want) != normalise(got) {
		return fmt.Sprintf("%q wanted, %q came", want, got)
	}
	return ""
}

// zxid() compares two zxids, either exactly or only by their order among all zxids of the transcript.
func (c *comparison) zxid(list *[][2]int64, want, got string) string {
	w, _ := strconv.ParseInt(want, 16, 64)
	g, _ := strconv.ParseInt(got, 16, 64)
	if c.exactZxids || w == 0 || g == 0 {
		if w != g {
			return fmt.Sprintf("zxid 0x%x wanted, 0x%x came", w, g)
		}
		return ""
	}
	for _, p := range *list {
		if (w < p[0]) != (g < p[1]) || (w == p[0]) != (g == p[1]) {
			return fmt.Sprintf("zxid 0x%x wanted, 0x%x came: not in the order of 0x%x, which came as 0x%x", w, g, p[0],
				p[1])
		}
	}
	*list = append(*list, [2]int64{w, g})
	return ""
}

func normalise(line string) string {
	if m := timeLine.FindStringSubmatch(line); m != nil && !strings.HasSuffix(line, epochTime) {
		return m[1] + "<time>"
	}
	if m := cliBuild.FindStringSubmatch(line); m != nil {
		return m[1] + "<build>"
	}
	if nameList.MatchString(line) {
		return sorted(line[1:len(line)-1], ", ") // getEphemerals comes in any order
	}
	return line
}

func sorted(list, sep string) string {
	names := strings.Split(list, sep)
	slices.Sort(names)
	return strings.Join(names, sep)
}

// splitEvents takes the notification blocks out of a command's output, because their place in the output
// depends on the client's event thread.
func splitEvents(lines []string) (rest, events []string) {
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" && i+3 < len(lines) && lines[i+1] == "WATCHER::" {
			events = append(events, lines[i+3])
			i += 3
			continue
		}
		rest = append(rest, lines[i])
	}
	return rest, events
}
