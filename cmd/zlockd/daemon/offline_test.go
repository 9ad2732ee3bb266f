package daemon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// `varying` lists the parts of a command's output that differ from run to run, and the text that stands for
// each of them in a script.
var varying = []struct {
	form *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "ID"},
	{regexp.MustCompile(`\b0x[0-9a-f]{9,}\b`), "ZXID"},
	{regexp.MustCompile(`digest [0-9a-f]{1,16}\b`), "digest HASH"},
	{regexp.MustCompile(`, in [0-9.ms]+\n`), ", in TIME\n"},
	{regexp.MustCompile(`"seconds":[0-9.e-]+`), `"seconds":TIME`},
	{regexp.MustCompile(`"lostAfter":"[^"]+"`), `"lostAfter":"TIME"`},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`(?m)^  /a/e00\n(  /a/e\d\d\n){18}  /a/e19\n`), "  twenty paths\n"},
	{regexp.MustCompile(`"/a/e00",("/a/e\d\d",){20}"/a/e21"`), `"twenty-two paths"`},
	{regexp.MustCompile(`(?m)("/a/e\d\d": only in \$DIR/kept\n){22}`), "twenty-two nodes\n"},
	{regexp.MustCompile(`(,"\\"/a/e\d\d\\": only in \$DIR/kept"){22}`), `,"twenty-two nodes"`},
}

// The commands on data print the answers in testdata/data/commands.txt. Their input is the backup of a server
// with 22 ephemeral nodes. $SERVER is the server's address.
func TestDataCommands(t *testing.T) {
	dir := t.TempDir()
	s := zlocktest.Start(t)
	c := s.Connect()
	create := func(path string, flags int32) {
		t.Helper()
		must.Get(c.Create(path, []byte("x"), flags, zk.WorldACL(zk.PermAll)))(t)
	}
	create("/a", 0)
	create("/a/b", 0)
	for i := range 22 {
		create(fmt.Sprintf("/a/e%02d", i), zk.FlagEphemeral)
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "backup"), s.Backup(), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))

	const file = "testdata/data/commands.txt"
	compareScript(t, file, string(must.Get(os.ReadFile(file))(t)), "", func(args string) string {
		var out, errs bytes.Buffer
		words := strings.Fields(strings.NewReplacer("$DIR", dir, "$SERVER", s.Addr).Replace(args))
		code := (&daemon{stdout: &out, stderr: &errs}).program().Main(words)
		hide := func(text string) string {
			text = strings.NewReplacer(dir, "$DIR", s.Addr, "$SERVER").Replace(text)
			for _, v := range varying {
				text = v.form.ReplaceAllString(text, v.text)
			}
			return text
		}
		return transcript(hide(out.String()), hide(errs.String())) + fmt.Sprintf("exit %d\n", code)
	})
}
