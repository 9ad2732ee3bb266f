//go:build stock

package stock

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The tests of zlockd's settings have a table that says how lines of a zoo.cfg are read. ZooKeeper's own
// classes must read them in the same way.
func TestTableOfZooKeysIsZooKeepers(t *testing.T) {
	cmd := javaDriver(t, "ZooCfg")
	var rows [][]string
	var input strings.Builder
	text := must.Get(os.ReadFile("../../cmd/zlockd/internal/settings/testdata/zookeys.table"))(t)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "# ") {
			continue
		}
		row := strings.Split(strings.TrimRight(line, "\n"), " | ")
		rows = append(rows, row)
		input.WriteString(row[0] + "\n" + must.Get(strconv.Unquote(row[1]))(t) + "\x00")
	}
	for i, arg := range cmd {
		if arg == "-cp" { // the admin server needs this jar, but the manifest does not name it
			cmd[i+1] += ":/usr/share/java/servlet-api.jar"
		}
	}
	c := exec.Command(cmd[0], cmd[1:]...)
	c.Stdin, c.Stderr = strings.NewReader(input.String()), os.Stderr
	got := strings.Split(strings.TrimSpace(string(must.Get(c.Output())(t))), "\n")
	if !expect.Equal(t, len(got), len(rows), "answers") {
		return
	}
	for i, row := range rows {
		t.Run(strconv.Itoa(i)+" "+row[1], func(t *testing.T) {
			expect.Equal(t, got[i], row[2], "ZooKeeper reads %s", row[0])
		})
	}
}
