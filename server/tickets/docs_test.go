package tickets_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every command of docs/tickets.md has the answer that the page shows.
func TestDocumentationIsTrue(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	i := start(t, nil)
	page := string(must.Get(os.ReadFile("../../docs/tickets.md"))(t))
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n```json\n(.*?)```").FindAllStringSubmatch(page, -1)
	must.Equal(t, len(blocks), strings.Count(page, "```sh"), "commands with an answer")
	script := "set -e\n"
	for _, b := range blocks {
		script += strings.ReplaceAll(b[1], "localhost:8183", i.TicketAddr()) + "echo\necho ----\n"
	}
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	must.OK(t, err, "%s", out)
	answers := strings.Split(string(out), "----\n")
	must.Equal(t, len(answers), len(blocks)+1, "answers in %s", out)
	for n, b := range blocks {
		want, got := objects(t, b[2]), objects(t, answers[n])
		must.Equal(t, len(got), len(want), "answers to %s in %s", b[1], answers[n])
		for i := range want {
			compare(t, b[1], got[i], want[i])
		}
	}
}

// A server can read the file of tokens that docs/tickets.md shows.
func TestTokensOfThePageAreRead(t *testing.T) {
	page := string(must.Get(os.ReadFile("../../docs/tickets.md"))(t))
	block := regexp.MustCompile("(?s)```\n(# NAME SHA256.*?)```").FindStringSubmatch(page)
	must.That(t, block != nil, "the page has no file of tokens")
	file := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(file, []byte(block[1]), 0o600))
	must.Get(tickets.ReadTokens(file))(t)
	for _, bound := range regexp.MustCompile(`\[(.*?)\]`).FindAllStringSubmatch(block[1], -1) {
		must.OK(t, os.WriteFile(file, []byte(strings.TrimSpace(block[1])+" "+bound[1]+"\n"), 0o600))
		must.Get(tickets.ReadTokens(file))(t)
	}
}

// objects() reads a text of JSON objects.
func objects(t *testing.T, text string) (list []map[string]any) {
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var o map[string]any
		must.OK(t, d.Decode(&o), "%s", text)
		list = append(list, o)
	}
	return list
}

// compare() compares an answer with what the page says.
func compare(t *testing.T, command string, got, want map[string]any) {
	for name, value := range want {
		have, there := got[name]
		expect.That(t, there, "%v lacks %s", got, name)
		switch name {
		case "held", "position", "of", "queued", "ttlMs", "error", "drawn", "left", "repeated":
			expect.Equal(t, have, value, "%s: %s", command, name)
		}
	}
	for name := range got {
		_, there := want[name]
		expect.That(t, there, "the page does not tell of %s in the answer to %s", name, command)
	}
}
