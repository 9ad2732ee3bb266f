package examples

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// need() skips a test whose program is not installed.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// tickets() starts a server with a port for tickets, and returns its URL.
func tickets(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i := must.Get(server.Start(ctx, server.Options{ClientAddr: "127.0.0.1:0", TicketAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = i.Close(ctx)
	})
	must.OK(t, i.Ready(ctx))
	return "http://" + i.TicketAddr()
}

// The module for Python passes its own tests.
func TestPython(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until tickets expire: make test-all")
	}
	need(t, "python3")
	cmd := exec.Command("python3", "-B", "-m", "unittest", "-v")
	cmd.Dir, cmd.Env = "python", append(os.Environ(), "ZLOCK_HTTP="+tickets(t))
	out, err := cmd.CombinedOutput()
	must.OK(t, err, "%s", out)
	t.Logf("%s", out)
}

// job is a job of a CI system: commands with one environment.
type job struct {
	t   *testing.T
	dir string // working directory of the job
	env []string
}

func (j job) sh(script string) (out string, err error) {
	cmd := exec.Command("bash", "-e", "-c", script)
	cmd.Dir, cmd.Env = j.dir, append([]string{"PATH=" + os.Getenv("PATH")}, j.env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// action() runs an action as a runner of workflows does, with the given inputs and the defaults of the other
// inputs. It returns the content of the action's output file.
func (j job) action(name string, inputs map[string]string) (output string, err error) {
	j.t.Helper()
	var a struct {
		Inputs map[string]struct {
			Default  string
			Required bool
		}
		Runs struct {
			Using string
			Steps []struct {
				Shell, Run string
				Env        map[string]string
			}
		}
	}
	at := must.Get(filepath.Abs("ci/github/" + name))(j.t)
	must.OK(j.t, yaml.Unmarshal(must.Get(os.ReadFile(at+"/action.yml"))(j.t), &a))
	must.Equal(j.t, a.Runs.Using, "composite")
	must.Equal(j.t, len(a.Runs.Steps), 1, "steps of %s", name)
	step := a.Runs.Steps[0]
	must.Equal(j.t, step.Shell, "bash")
	result := filepath.Join(j.dir, "output")
	must.OK(j.t, os.WriteFile(result, nil, 0o600))
	env := append(j.env, "GITHUB_ACTION_PATH="+at, "GITHUB_OUTPUT="+result, "RUNNER_TEMP="+j.dir)
	expression := regexp.MustCompile(`\$\{\{ *inputs\.(\w+) *\}\}`)
	for name, value := range step.Env {
		env = append(env, name+"="+expression.ReplaceAllStringFunc(value, func(e string) string {
			input := expression.FindStringSubmatch(e)[1]
			declared, there := a.Inputs[input]
			must.That(j.t, there, "%s is no input", input)
			if given, there := inputs[input]; there {
				return given
			}
			must.That(j.t, !declared.Required, "%s is not given", input)
			return declared.Default
		}))
	}
	for _, e := range env {
		must.That(j.t, !strings.Contains(e, "inputs."), "%s", e)
	}
	must.That(j.t, !strings.Contains(step.Run, "${{"), "an input would be read as a command: %s", step.Run)
	out, err := job{j.t, j.dir, env}.sh(step.Run)
	j.t.Logf("%s: %v %s", name, err, out)
	return string(must.Get(os.ReadFile(result))(j.t)), err
}

// The actions for workflows hold a lock from one step to another, and renew it between them.
func TestGitHubActions(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until tickets are renewed: make test-all")
	}
	need(t, "curl")
	need(t, "bash")
	url := tickets(t)
	one, two := job{t, t.TempDir(), nil}, job{t, t.TempDir(), nil}
	inputs := map[string]string{"path": "/ci/deploy", "servers": "http://127.0.0.1:1," + url, "ttl": "5",
		"reason": "deploy of $(date) 'web' & more", "wait": "0"}
	output := must.Get(one.action("take", inputs))(t)
	token := must.Get(strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(output, "token=")), 10, 64))(t)
	// This is longer than the ticket lasts if it is not renewed.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		_, err := two.action("take", inputs)
		must.Fails(t, err, "a second job holds too")
		time.Sleep(500 * time.Millisecond)
	}
	later := make(chan string, 1)
	go func() {
		output, _ := two.action("take", map[string]string{"path": "/ci/deploy", "servers": url, "wait": "60"})
		later <- output
	}()
	_, err := one.action("give", inputs)
	must.OK(t, err)
	next := must.Get(strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(<-later, "token=")), 10, 64))(t)
	expect.That(t, next > token, "token %d after %d", next, token)
	_, err = two.action("give", inputs)
	must.OK(t, err)
	_, err = two.action("give", inputs)
	must.OK(t, err, "a second time")
	left := must.Get(filepath.Glob(one.dir + "/zlock*"))(t)
	expect.Equal(t, len(left), 0, "files that are left: %v", left)
}

// A job learns that its lock was lost while it worked.
func TestGitHubActionsTellALoss(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a ticket expires: make test-all")
	}
	need(t, "curl")
	url := tickets(t)
	j := job{t, t.TempDir(), nil}
	inputs := map[string]string{"path": "/ci/x", "servers": url, "ttl": "4", "reason": ""}
	must.Get(j.action("take", inputs))(t)
	// Stop the process that renews the ticket, as if the runner slept.
	out, err := j.sh("kill -STOP $(cat zlock-ci-x.pid)")
	must.OK(t, err, "%s", out)
	other := job{t, t.TempDir(), nil}
	must.Get(other.action("take", inputs))(t)
	out, err = j.sh("kill -CONT $(cat zlock-ci-x.pid)")
	must.OK(t, err, "%s", out)
	_, err = j.action("give", inputs)
	must.Fails(t, err, "the job does not learn of the loss")
	_, err = other.action("give", inputs)
	must.OK(t, err)
}

// The commands of the Jenkinsfile work in their order. If the deploy fails, they still give the lock back.
func TestJenkinsfile(t *testing.T) {
	need(t, "curl")
	url := tickets(t)
	file := string(must.Get(os.ReadFile("ci/Jenkinsfile"))(t))
	steps := regexp.MustCompile(`sh '([^']*)'`).FindAllStringSubmatch(file, -1)
	must.Equal(t, len(steps), 3, "commands of the Jenkinsfile")
	dir := t.TempDir()
	must.OK(t, os.Symlink(must.Get(filepath.Abs("."))(t), filepath.Join(dir, "examples")))
	deploy := "#!/bin/sh\ncurl -sf $ZLOCK_HTTP/v1/locks$ZLOCK_PATH | grep -q shop || exit 3; exit 1\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "deploy.sh"), []byte(deploy), 0o700))
	j := job{t, dir, []string{"ZLOCK_HTTP=" + url, "ZLOCK_REASON=shop 12",
		"ZLOCK_TICKET_FILE=" + filepath.Join(dir, "ticket")}}
	for _, value := range regexp.MustCompile(`(ZLOCK_\w+) = '([^']*)'`).FindAllStringSubmatch(file, -1) {
		if value[1] != "ZLOCK_HTTP" {
			j.env = append(j.env, value[1]+"="+value[2])
		}
	}
	out, err := j.sh(steps[0][1])
	must.OK(t, err, "%s", out)
	must.Get(strconv.ParseInt(strings.TrimSpace(out), 10, 64))(t)
	info := must.Get(os.Stat(filepath.Join(dir, "ticket")))(t)
	expect.Equal(t, info.Mode().Perm(), os.FileMode(0o600), "the mode of the ticket file")
	again, err := j.sh(steps[0][1])
	must.OK(t, err, "%s", again)
	expect.Equal(t, again, out, "the same step again")
	_, err = j.sh(steps[1][1])
	expect.Equal(t, err.(*exec.ExitError).ExitCode(), 1, "the deploy sees its lock, and fails by itself")
	out, err = j.sh(steps[2][1])
	must.OK(t, err, "%s", out)
	out, err = j.sh("curl -sf $ZLOCK_HTTP/v1/locks$ZLOCK_PATH")
	must.OK(t, err)
	expect.Has(t, out, `"holders":[]`, "who holds in the end")
	for _, env := range []string{"ZLOCK_PATH=no-slash", "ZLOCK_TTL=1"} {
		bad := job{t, dir, append(j.env, env)}
		out, err = bad.sh(steps[0][1])
		must.Fails(t, err, env)
		expect.Has(t, out, "error", env)
	}
}

// If another program, such as a proxy, answers with a page at a server's address, a job does not take the
// page for a lock.
func TestPageIsNoLock(t *testing.T) {
	need(t, "curl")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>log in</html>")
	}))
	defer other.Close()
	dir := t.TempDir()
	j := job{t, dir, []string{"ZLOCK_HTTP=" + other.URL, "ZLOCK_PATH=/ci/x", "ZLOCK_WAIT=0",
		"ZLOCK_TICKET_FILE=" + filepath.Join(dir, "ticket")}}
	out, err := j.sh(must.Get(filepath.Abs("ci/zlock-curl.sh"))(t) + " take")
	must.Fails(t, err, "take says %q", out)
}

// An agent reads the name and the description of a skill from the YAML at the top of its page.
func TestSkillsHaveNameAndDescription(t *testing.T) {
	for _, file := range must.Get(filepath.Glob("agents/*/SKILL.md"))(t) {
		text := string(must.Get(os.ReadFile(file))(t))
		parts := strings.SplitN(text, "---\n", 3)
		must.Equal(t, len(parts), 3, "%s: parts, divided by lines of ---", file)
		var head struct{ Name, Description string }
		must.OK(t, yaml.Unmarshal([]byte(parts[1]), &head), file)
		expect.Equal(t, head.Name, filepath.Base(filepath.Dir(file)), "%s: the name", file)
		expect.That(t, len(head.Description) > 50, "%s: the description is %q", file, head.Description)
	}
}
