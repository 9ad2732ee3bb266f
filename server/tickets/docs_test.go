package tickets_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every command of docs/tickets.md is run as it stands there, and answers what the page says.
func TestDocumentationIsTrue(t *testing.T) {
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
		var got, want map[string]any
		must.OK(t, json.Unmarshal([]byte(b[2]), &want), "%s", b[2])
		must.OK(t, json.Unmarshal([]byte(answers[n]), &got), "%s", answers[n])
		for name, value := range want {
			have, there := got[name]
			expect.That(t, there, "%s lacks %s", answers[n], name)
			switch name {
			case "held", "position", "of", "queued", "ttlMs", "error":
				expect.Equal(t, have, value, "%s: %s", b[1], name)
			}
		}
		for name := range got {
			_, there := want[name]
			expect.That(t, there, "the page does not tell of %s in the answer to %s", name, b[1])
		}
	}
}
