package ticket

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// portForTickets starts a server with a port for tickets, and returns its address.
func portForTickets(t *testing.T) (i *zlockd.Instance, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i = must.Get(zlockd.Start(ctx, zlockd.Options{TicketAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = i.Close(ctx)
	})
	must.OK(t, i.Ready(ctx))
	return i, "http://" + i.TicketAddr()
}

// agent is a client of one zlock mcp.
type agent struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	ended chan error
	last  int
}

// runCommandOf runs a command of this package with the server at `url`.
func runCommandOf(c *call.Command, url string, in *os.File, out io.Writer, args ...string) error {
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	do := c.Setup(flags)
	if err := flags.Parse(append([]string{"--http", url}, args...)); err != nil {
		return err
	}
	a := &call.App{Stdin: in, Stdout: out, Stderr: os.Stderr, Getenv: func(string) string { return "" }}
	return do(&call.Call{App: a, Call: &cli.Call{Args: flags.Args(), Flags: flags}})
}

// startAgent runs zlock mcp, with pipes as its input and output, as an agent's client does.
func startAgent(t *testing.T, url, dir string, more ...string) *agent {
	t.Helper()
	stdin, in, err := os.Pipe()
	must.OK(t, err)
	lines, stdout := io.Pipe()
	a := &agent{t: t, in: in, lines: make(chan string, 100), ended: make(chan error, 1)}
	go func() {
		a.ended <- runCommandOf(Agents(), url, stdin, stdout, append([]string{"--ticket-dir", dir}, more...)...)
		stdout.Close()
		stdin.Close()
	}()
	go func() {
		defer close(a.lines)
		for r := bufio.NewReader(lines); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			a.lines <- line
		}
	}()
	t.Cleanup(func() { in.Close() })
	return a
}

func (a *agent) write(line string) {
	a.t.Helper()
	_, err := io.WriteString(a.in, line+"\n")
	must.OK(a.t, err)
}

// rpcAnswer is an answer of the program.
type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  struct {
		Revision  string           `json:"protocolVersion"`
		Revisions []string         `json:"supportedVersions"`
		Kind      string           `json:"resultType"`
		Meta      map[string]any   `json:"_meta"`
		Tools     []map[string]any `json:"tools"`
		Content   []struct{ Type, Text string }
		State     lockState `json:"structuredContent"`
		Failed    bool      `json:"isError"`
	} `json:"result"`
	Error *rpcError `json:"error"`
}

func (a *agent) read() (r rpcAnswer) {
	a.t.Helper()
	select {
	case line, more := <-a.lines:
		must.That(a.t, more, "the program ended")
		must.OK(a.t, json.Unmarshal([]byte(line), &r), "%s", line)
		expect.Equal(a.t, r.Version, "2.0", "%s", line)
	case <-time.After(time.Minute):
		a.t.Fatal("no answer within a minute")
	}
	return r
}

// send sends a request and returns its id.
func (a *agent) send(method, params string) string {
	a.t.Helper()
	a.last++
	a.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.last, method, params))
	return fmt.Sprint(a.last)
}

func (a *agent) ask(method, params string) rpcAnswer {
	a.t.Helper()
	id := a.send(method, params)
	r := a.read()
	expect.Equal(a.t, string(r.ID), id, "the id of the answer to %s", method)
	return r
}

func (a *agent) tool(name, arguments string) rpcAnswer {
	a.t.Helper()
	return a.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

// state() calls a tool that must succeed, and returns the state of the ticket.
func (a *agent) state(name, arguments string) lockState {
	a.t.Helper()
	r := a.tool(name, arguments)
	must.That(a.t, r.Error == nil, "%s %s is refused: %+v", name, arguments, r)
	must.That(a.t, !r.Result.Failed, "%s %s fails: %+v", name, arguments, r)
	text := lockState{}
	must.OK(a.t, json.Unmarshal([]byte(r.Result.Content[0].Text), &text))
	expect.Equal(a.t, text.Next, r.Result.State.Next, "text and structure of a result")
	return text
}

// says() calls a tool that must fail. The error must contain `want`, which helps the model to correct the
// call.
func (a *agent) says(name, arguments, want string) {
	a.t.Helper()
	r := a.tool(name, arguments)
	must.That(a.t, r.Error == nil, "%s %s is refused: %+v", name, arguments, r)
	must.That(a.t, r.Result.Failed, "%s %s does not fail: %+v", name, arguments, r)
	expect.Has(a.t, r.Result.Content[0].Text, want, "%s %s", name, arguments)
}

func (a *agent) initialize() {
	a.t.Helper()
	r := a.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test"}}`)
	expect.Equal(a.t, r.Result.Revision, "2025-11-25", "the revision agreed on")
	a.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// end() closes the program's input and waits for its end.
func (a *agent) end() {
	a.t.Helper()
	must.OK(a.t, a.in.Close())
	for range a.lines { // read the rest of the program's output
	}
	must.OK(a.t, <-a.ended, "the end of zlock mcp")
}

// Two agents pass a lock from one to the other with the three tools of the MCP server. Their holds continue
// after that server has ended, and the agents see no secret.
func TestMCPPassesALockOn(t *testing.T) {
	_, url := portForTickets(t)
	one, two := t.TempDir(), t.TempDir()
	a, b := startAgent(t, url, one), startAgent(t, url, two)
	a.initialize()
	b.initialize()
	list := a.ask("tools/list", `{}`)
	var names []string
	for _, tool := range list.Result.Tools {
		names = append(names, tool["name"].(string))
		schema := tool["inputSchema"].(map[string]any)
		expect.Equal(t, schema["type"], any("object"), "%v", tool)
	}
	expect.List(t, names, []string{"lock_take", "lock_wait", "lock_give"}, "tools")

	held := a.state("lock_take", `{"path":"/staging","reason":"deploy of web","ttl_seconds":60}`)
	expect.That(t, held.Held, "it does not hold: %+v", held)
	expect.That(t, held.Token != "", "it has no token: %+v", held)
	expect.That(t, held.Safe > 30 && held.Safe <= 48, "it is safe for %v s, want 30 to 48", held.Safe)
	queued := b.state("lock_take", `{"path":"/staging","reason":"a test"}`)
	expect.That(t, !queued.Held, "queued: %+v", queued)
	expect.Equal(t, queued.Position, 1, "queued: position")
	expect.Equal(t, queued.Of, 2, "queued")
	must.That(t, queued.Behind != nil, "no holder is named: %+v", queued)
	expect.Equal(t, queued.Behind.Reason, "deploy of web")
	b.says("lock_take", `{"path":"/staging","reason":"a try","queue":false}`, "held: ")
	still := b.state("lock_wait", fmt.Sprintf(`{"ticket":%q,"wait_seconds":0}`, queued.Ticket))
	expect.That(t, !still.Held, "held: %+v", still)

	// While a tool waits, the program answers other requests.
	id := b.send("tools/call", fmt.Sprintf(`{"name":"lock_wait","arguments":{"ticket":%q,"wait_seconds":60}}`,
		queued.Ticket))
	expect.Equal(t, b.ask("ping", `{}`).Error, nil, "a ping in a wait")

	// After a restart, the program needs only the name of a ticket to continue with it.
	a.end()
	secret := string(must.Get(os.ReadFile(filepath.Join(one, held.Ticket)))(t))
	info := must.Get(os.Stat(filepath.Join(one, held.Ticket)))(t)
	expect.Equal(t, info.Mode().Perm(), os.FileMode(0o600), "the mode of the ticket's file")
	expect.That(t, !strings.Contains(secret, held.Ticket), "the secret has the ticket's name in it")
	a = startAgent(t, url, one)
	a.initialize()
	again := a.state("lock_wait", fmt.Sprintf(`{"ticket":%q}`, held.Ticket))
	expect.That(t, again.Held, "after a new start: %+v", again)
	expect.Equal(t, again.Token, held.Token, "after a new start: token")
	a.state("lock_give", fmt.Sprintf(`{"ticket":%q}`, held.Ticket))
	passed := b.read()
	expect.Equal(t, string(passed.ID), id, "the wait's answer")
	expect.That(t, passed.Result.State.Held, "passed on: %+v", passed)
	a.says("lock_give", fmt.Sprintf(`{"ticket":%q}`, held.Ticket), "Call lock_take for a new ticket")
	a.says("lock_wait", fmt.Sprintf(`{"ticket":%q}`, held.Ticket), "do not work under its lock")

	// Another program gives back the ticket of agent b. To b this looks like an expiry.
	must.OK(t, runCommandOf(Give(), url, nil, io.Discard, "--ticket-file", filepath.Join(two, queued.Ticket)),
		"zlock give with the agent's file")
	b.says("lock_wait", fmt.Sprintf(`{"ticket":%q}`, queued.Ticket), "is over")
	b.end()
	for _, dir := range []string{one, two} {
		left := must.Get(os.ReadDir(dir))(t)
		expect.Equal(t, len(left), 0, "files that are left in %s", dir)
	}
}

// A ticket that has ended by itself is reported as such, with advice.
func TestMCPTellsALoss(t *testing.T) {
	_, url := portForTickets(t)
	a := startAgent(t, url, t.TempDir())
	a.initialize()
	held := a.state("lock_take", `{"path":"/short","reason":"a nap","ttl_seconds":4}`)
	must.That(t, held.Held, "%+v", held)
	next := a.state("lock_take", `{"path":"/short","reason":"the next"}`)
	next = a.state("lock_wait", fmt.Sprintf(`{"ticket":%q,"wait_seconds":60}`, next.Ticket))
	expect.That(t, next.Held, "after the expiry: %+v", next)
	a.says("lock_wait", fmt.Sprintf(`{"ticket":%q}`, held.Ticket), "the work may have overlapped")
	slots := a.state("lock_take", `{"path":"/gpu","reason":"training","mode":"permit","limit":2}`)
	expect.List(t, slots.Slots, []int{1}, "slots")
}

// Wrong arguments are reported to the model, and leave nothing behind.
func TestMCPRefusesOddArguments(t *testing.T) {
	_, url := portForTickets(t)
	dir := t.TempDir()
	a := startAgent(t, url, dir)
	a.initialize()
	for arguments, want := range map[string]string{
		`{"path":"x","reason":"y"}`:               "does not begin with /",
		`{"path":"/x"}`:                           "reason is missing",
		`{"path":"/x","reason":"y","secret":"z"}`: `unknown field "secret"`,
		`{"path":7,"reason":"y"}`:                 "wrong arguments",
		`[]`:                                      "wrong arguments",
		`{"path":"/x","reason":"y","ttl_seconds":1}`:                "ttl",
		`{"path":"/x","reason":"y","ttl_seconds":-1}`:               "ttl",
		`{"path":"/x","reason":"y","mode":"all"}`:                   "mode",
		`{"path":"/x","reason":"y","mode":"permit"}`:                "limit",
		`{"path":"/x/../y","reason":"y"}`:                           "path",
		`{"path":"/x","reason":"` + strings.Repeat("y", 300) + `"}`: "reason",
	} {
		a.says("lock_take", arguments, want)
	}
	for arguments, want := range map[string]string{
		`{}`:                               "is not a ticket",
		`{"ticket":"../../etc/passwd"}`:    "is not a ticket",
		`{"ticket":"t-aaaaaaaaaaaa"}`:      "Call lock_take for a new ticket",
		`{"ticket":"t-aa","wait":1}`:       "unknown field",
		`{"ticket":"","wait_seconds":601}`: "wait_seconds",
	} {
		a.says("lock_wait", arguments, want)
	}
	expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 0, "files that are left")
}

// The program answers every input of a client as JSON-RPC says, and goes on.
func TestMCPAnswersOddMessages(t *testing.T) {
	_, url := portForTickets(t)
	a := startAgent(t, url, t.TempDir())
	code := func(line, id string, want int) {
		t.Helper()
		a.write(line)
		r := a.read()
		shown := line[:min(len(line), 80)]
		must.That(t, r.Error != nil, "%s: no error", shown)
		expect.Equal(t, r.Error.Code, want, "%s: %s", shown, r.Error.Message)
		expect.Equal(t, string(r.ID), id, "%s: the id", shown)
	}
	code(`{"jsonrpc":"2.0","id":"early","method":"tools/list"}`, `"early"`, rpcBadParams)
	code(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `1`, rpcBadParams)
	a.initialize()
	code(`{`, ``, rpcNotJSON)
	code(`hello`, ``, rpcNotJSON)
	code("\xff\xfe", ``, rpcNotJSON)
	code(`[]`, ``, rpcInvalid)
	code(`"text"`, ``, rpcInvalid)
	code(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, ``, rpcInvalid)
	code(`{"jsonrpc":"1.0","id":1,"method":"ping"}`, ``, rpcInvalid)
	code(`{"jsonrpc":"2.0","id":1}`, ``, rpcInvalid)
	code(`{"jsonrpc":"2.0","id":null,"method":"ping"}`, ``, rpcInvalid)
	code(`{"jsonrpc":"2.0","id":{},"method":"ping"}`, ``, rpcInvalid)
	code(`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, ``, rpcInvalid)
	code(`{"jsonrpc":"2.0","id":"x","method":"resources/list"}`, `"x"`, rpcNoMethod)
	code(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":[1]}`, `2`, rpcBadParams)
	code(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"rm"}}`, `2`, rpcBadParams)
	code(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`, `2`, rpcBadParams)
	code(strings.Repeat("[", 100_000), ``, rpcNotJSON)
	code(`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":"`+strings.Repeat("y", mostMessage)+`"}}`, ``,
		rpcInvalid)
	// The program does not answer these messages.
	a.write(``)
	a.write(`{"jsonrpc":"2.0","id":9,"result":{}}`)
	a.write(`{"jsonrpc":"2.0","method":"notifications/unknown"}`)
	a.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}`)
	a.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}`)
	expect.Equal(t, a.ask("ping", `{"x":"`+strings.Repeat("y", mostMessage/2)+`"}`).Error, nil, "a long ping")
	for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-03-26": "2024-11-05",
		"2025-06-18": "2025-06-18", "2030-01-01": "2025-11-25", "1": "2025-11-25",
		statelessRevision: "2025-11-25"} {
		r := a.ask("initialize", fmt.Sprintf(`{"protocolVersion":%q}`, asked))
		expect.Equal(t, r.Result.Revision, want, "the revision offered to a client of %s", asked)
	}
	// The last line needs no newline.
	_, err := io.WriteString(a.in, `{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	must.OK(t, err)
	must.OK(t, a.in.Close())
	expect.Equal(t, string(a.read().ID), `"last"`, "the id of the last answer")
	must.OK(t, <-a.ended)
}

// Since revision 2026-07-28 each request says which revision it means, and there is no method `initialize`.
func TestMCPWithoutInitialize(t *testing.T) {
	_, url := portForTickets(t)
	a := startAgent(t, url, t.TempDir())
	meta := func(revision string) string {
		return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
			`"io.modelcontextprotocol/clientCapabilities":{}}`, revision)
	}
	r := a.ask("server/discover", "{"+meta(statelessRevision)+"}")
	must.That(t, r.Error == nil, "%+v", r.Error)
	expect.Equal(t, r.Result.Revisions[0], statelessRevision, "the newest revision")
	expect.Equal(t, r.Result.Kind, "complete", "the kind of the result")
	r = a.ask("tools/list", "{"+meta(statelessRevision)+"}")
	expect.Equal(t, len(r.Result.Tools), 3, "tools")
	r = a.ask("tools/call", `{"name":"lock_take","arguments":{"path":"/a","reason":"b"},`+
		meta(statelessRevision)+"}")
	expect.That(t, r.Result.State.Held, "%+v", r)
	expect.Equal(t, r.Result.Kind, "complete", "kind")
	expect.That(t, r.Result.Meta["io.modelcontextprotocol/serverInfo"] != nil, "no serverInfo: %+v", r)
	r = a.ask("tools/list", "{"+meta("1900-01-01")+"}")
	must.That(t, r.Error != nil, "an unknown revision is taken")
	expect.Equal(t, r.Error.Code, rpcUnknownRevision)
	expect.Has(t, fmt.Sprint(r.Error.Data), statelessRevision)
	r = a.ask("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	must.That(t, r.Error != nil, "a request without clientCapabilities is taken")
	expect.Equal(t, r.Error.Code, rpcBadParams)
}

// A cancelled wait gets no answer. A request with the id of one that still waits is refused. The end of the
// input ends a wait, but the ticket keeps its place in the queue.
func TestMCPWaitsEnd(t *testing.T) {
	i, url := portForTickets(t)
	a := startAgent(t, url, t.TempDir())
	a.initialize()
	a.state("lock_take", `{"path":"/w","reason":"holds"}`)
	queued := a.state("lock_take", `{"path":"/w","reason":"waits"}`)
	wait := fmt.Sprintf(`{"name":"lock_wait","arguments":{"ticket":%q,"wait_seconds":600}}`, queued.Ticket)
	waits := func(n int) {
		t.Helper()
		must.Await(t, fmt.Sprint(n, " waits"), time.Minute, func() bool { return i.TicketWaits() == n })
	}
	id := a.send("tools/call", wait)
	waits(1)
	a.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, wait))
	r := a.read()
	must.That(t, r.Error != nil, "an id is used twice: %+v", r)
	expect.Equal(t, r.Error.Code, rpcInvalid)
	a.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
	waits(0)
	expect.Equal(t, a.ask("ping", `{}`).Error, nil, "no answer comes to a cancelled request")
	a.send("tools/call", wait)
	waits(1)
	a.end()
	waits(0)
	err := runCommandOf(Take(), url, nil, io.Discard, "-n", "/w")
	expect.That(t, cli.HasCode(err, call.ExitNotAcquired), "the holder's ticket is gone: a try ends with %v",
		err)
}

// If no server answers, a call ends after --timeout, and its error names the ticket.
func TestMCPWithoutAServer(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, "http://127.0.0.1:1", dir, "--timeout", "300ms")
	a.initialize()
	a.says("lock_take", `{"path":"/a","reason":"b"}`, "Call lock_wait again")
	left := must.Get(os.ReadDir(dir))(t)
	must.Equal(t, len(left), 1, "files of tickets that may have been opened")
	a.says("lock_give", fmt.Sprintf(`{"ticket":%q}`, left[0].Name()), "call lock_give again")
	_, url := portForTickets(t)
	a = startAgent(t, url, dir)
	a.initialize()
	a.says("lock_wait", fmt.Sprintf(`{"ticket":%q}`, left[0].Name()), "is over")
	old := time.Now().AddDate(0, -2, 0)
	for _, name := range []string{"t-aaaaaaaaaaaa", "mine"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must.OK(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	startAgent(t, url, dir).end()
	left = must.Get(os.ReadDir(dir))(t)
	must.Equal(t, len(left), 1, "files that are left")
	expect.Equal(t, left[0].Name(), "mine", "the file that is not a ticket's")
}

// The documentation names each tool with its arguments, and each revision of the protocol.
func TestDocumentationOfTools(t *testing.T) {
	skill := string(must.Get(os.ReadFile("../../../../examples/agents/zlock/SKILL.md"))(t))
	docs := string(must.Get(os.ReadFile("../../../../docs/mcp.md"))(t))
	for _, tool := range toolList {
		expect.Has(t, skill, "`"+tool["name"].(string)+"`", "the skill")
		for argument := range tool["inputSchema"].(map[string]any)["properties"].(map[string]any) {
			expect.Has(t, docs, "`"+argument+"`", "docs/mcp.md on %s", tool["name"])
		}
	}
	for _, revision := range mcpRevisions {
		expect.Has(t, docs, revision, "docs/mcp.md")
	}
}
