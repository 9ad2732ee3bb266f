package proc

import (
	"bufio"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// followed maps the name of a test to the commands of the pages that this test runs, because the commands
// need the test's setup. Each command is given by its beginning.
var followed = map[string][]string{
	"TestZkCliReconfigures": {"zkCli.sh -server "},
	"TestTheClusterOfTheReadmeStarts": {"for s in 1=a 2=b 3=c; do zlock ca server ${s%=*} --host ${s#*=}; done",
		"zlockd --id 1 --peers 1=a:2888,2=b:2888,3=c:2888 --client-addr a:2181"},
	"TestReadmeExamplesWork": {"sleep 1", "bin/zlock run ", "bin/zlock show ",
		"zlockd --dev & sleep 1", "zlock run /jobs/nightly -- sleep 9 &"},
	"TestTheManualOfMembersCanBeFollowed": {"(umask 077; echo digest:super:secret >admin.auth)", "zlock member list",
		"zlockd --id 4 --data-dir /var/lib/zlockd", "zlock member add 4 10.0.0.4:2888 --auth-file admin.auth",
		"zlock member remove 2 --auth-file admin.auth", "zlock member replace 3 --auth-file admin.auth"},
	"TestServerIsAddedPromotedAndRemoved": {"zlock member promote 4"},
	"TestMachineIsReplaced":               {"zlock member replace 3 10.0.0.9:2888"},
	"TestMembersOfALargeCluster":          {"zlock member lead 2"},
	"TestTheManualOfUpgradesCanBeFollowed": {"zlockd check --config ", "zlock backup --auth-file ",
		"zlockd --check-ready --config ", "zlockd restore before.backup --data-dir ",
		"zlockd --config /etc/zlockd/zlockd.cfg"},
	"TestHangUp":                        {"zlockd --config zoo.cfg"},
	"TestFIPSModeRefusesWhatItCannotDo": {"GOFIPS140=v1.0.0 make build"},
	"TestTracePageRecordsTheStepsOfRequests": {
		"go tool trace "}, // not run here, because it opens a browser
}

// notRun are commands that no Go test runs, each with the reason, or with what runs it.
var notRun = map[string]string{
	"systemctl ":                "needs systemd: make deb-test",
	"apt install ":              "needs a Debian of its own: make deb-test",
	"systemd-analyze security":  "make deb-check",
	"go run ./cmd/zlockd --dev": "never ends, and is zlockd --dev",
}

// commands() returns the commands of a page: lines for the shell, lines after a prompt, and inline code that
// begins with a program's name and has more words.
func commands(page string) (list []string) {
	for _, m := range regexp.MustCompile("(?s)\n```(\\w*)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(m[2], "\\\n", " ")) {
			prompted, behind := strings.CutPrefix(line, "$ ")
			if behind || m[1] == "sh" {
				list = append(list, strings.TrimSpace(prompted))
			}
		}
	}
	page = regexp.MustCompile("(?s)\n```.*?```").ReplaceAllString(page, "")
	inline := regexp.MustCompile("`((?:[A-Z0-9]+=\\S+ )?(?:bin/)?(?:zlockd?|make|curl|go|apt|systemctl|" +
		"systemd-analyze|zkCli.sh) [^`]+)`")
	for _, m := range inline.FindAllStringSubmatch(page, -1) {
		list = append(list, m[1])
	}
	return list
}

// TestCommandsOfThePagesWork runs each command of three pages against a server that the command zlockd
// starts. It fails on a command that it does not run, unless `followed` or `notRun` lists the command.
func TestCommandsOfThePagesWork(t *testing.T) {
	t.Parallel()
	zlockd := cluster.Build(t)
	free := must.Get(cluster.FreePorts(4))(t)
	client, admin, peers := free[0], free[1], free[2:]
	host, port, _ := net.SplitHostPort(client)
	dir := t.TempDir()
	env := append(os.Environ(), "PATH="+filepath.Dir(cluster.Zlock(t))+":"+filepath.Dir(zlockd)+":"+
		os.Getenv("PATH"), "ZLOCK_ADMIN="+admin, "ZLOCK_SERVERS="+client)
	settings := []string{"ZLOCKD_CLIENT_ADDR=" + client, "ZLOCKD_ADMIN_ADDR=" + admin,
		"ZLOCKD_SUPER_DIGEST=super:lK75jTNcA+U9vtVEw5vB51mj/w4="}
	words := strings.NewReplacer("localhost:2181", client, "localhost 2181", host+" "+port, "localhost:8181", admin,
		"127.0.0.1:8181", admin, "curl …/", "curl -fsS "+admin+"/", "wait=5s", "wait=50ms", "10.0.0.1:2181",
		peers[0], "10.0.0.1:2888", peers[1], "10.0.0.", "127.0.0.", "/var/lib/zlockd", dir+"/one")
	run := func(in, command string, more ...string) (string, error) {
		cmd := exec.Command("sh", "-ec", words.Replace(command))
		cmd.Dir, cmd.Env = in, append(env, more...)
		timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		defer timer.Stop()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// start() runs a server until the test ends, or until stop() is called.
	start := func(command string) (stop func()) {
		cmd := exec.Command("sh", "-ec", "exec "+command)
		cmd.Dir, cmd.Env = dir, append(env, settings...)
		out := must.Get(cmd.StdoutPipe())(t)
		must.OK(t, cmd.Start())
		timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		line, err := bufio.NewReader(out).ReadString('\n')
		timer.Stop()
		expect.OK(t, err, "%s", command)
		expect.That(t, strings.HasPrefix(line, "zlockd ready client="+client), "%s: %q %v", command, line, err)
		return func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	start("zlockd --dev")()
	defer start("zlockd")()

	for _, name := range []string{"README.md", "docs/operations.md", "docs/upgrading.md"} {
		page, dir := string(must.Get(os.ReadFile("../../"+name))(t)), t.TempDir()
		for _, command := range commands(page) {
			if known(command) {
				continue
			}
			first, rest, _ := strings.Cut(command, " ")
			switch {
			case command == "zlockd" || command == "zlockd --dev":
			case first == "make": // other tests run the targets; here the target must exist
				if out, err := run("../..", "make -n "+rest); err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
			case command == "go install ./cmd/...":
				if out, err := run("../..", command, "GOBIN="+dir); err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
				for _, program := range []string{"zlock", "zlockd"} {
					_, err := os.Stat(filepath.Join(dir, program))
					expect.OK(t, err, "%s: %s", name, command)
				}
			case command == "zlockd --client-addr 2181 --id 3": // also check its output
				out, err := run(dir, command, "ZLOCKD_ADMIN_ADDR=off")
				expect.Fails(t, err, "%s", name)
				expect.Has(t, page, "$ "+command+"\n"+out+"```", "%s: page", name)
			case strings.HasPrefix(command, "zlockd --id 1 "): // check that the server would start
				check := strings.Replace(command, "zlockd", "zlockd check --admin-addr off --disk-reserve 0", 1)
				if out, err := run(dir, check); err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
			case regexp.MustCompile(`^(zlockd?( [a-z-]+)?|zlockd --help)$`).MatchString(command) &&
				// This is only a command's name: get its help.
				command != "zlock restart-order" && command != "zlock ca init":
				if out, err := run(dir, strings.TrimSuffix(command, " --help")+" --help"); err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
			case missing(command) != nil && os.Getenv("ZLTEST_REQUIRE_STOCK") == "":
				t.Logf("%s: %s is not run: %v", name, command, missing(command))
			default:
				if out, err := run(dir, command); err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
			}
		}
	}
}

// missing() says which program of a command is not installed here.
func missing(command string) error {
	for _, program := range []string{"curl", "man", "nc"} {
		if _, err := exec.LookPath(program); err != nil && slices.Contains(strings.Fields(command), program) {
			return err
		}
	}
	return nil
}

// known() reports whether a command is in `followed` or in `notRun`.
func known(command string) bool {
	for _, list := range followed {
		for _, begin := range list {
			if strings.HasPrefix(command, begin) {
				return true
			}
		}
	}
	for begin := range notRun {
		if strings.HasPrefix(command, begin) {
			return true
		}
	}
	return false
}

// The tests that `followed` names exist.
func TestCommandsAreFollowedByTestsThatExist(t *testing.T) {
	tests := map[string]bool{}
	must.OK(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	}))
	for name := range followed {
		expect.That(t, tests[name], "there is no %s", name)
	}
}
