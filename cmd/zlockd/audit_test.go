package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// TestAuditLogOfAServer: its file has the start, a client's change and the stop; SIGHUP opens it
// again. A slow request is in the log.
func TestAuditLogOfAServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "off", "--audit-log", file,
		"--slow-request", "1ns")
	c, err := wire.Open(p.ready["client"])
	must.OK(t, err)
	defer c.Close()
	must.Get(c.Create("/a", nil, 0))(t)
	reads := func(file, words string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			text, _ := os.ReadFile(file)
			if strings.Contains(string(text), words) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%q is not in %q", words, text)
			}
		}
	}
	reads(file, "\toperation=serverStart\tresult=success\n")
	reads(file, "\tip=127.0.0.1\toperation=create\tznode=/a\tznode_type=persistent\tresult=success\n")
	must.OK(t, os.Rename(file, file+".1"))
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.stderr.waitFor(t, "SIGHUP: the configuration was read again")
	reads(file, "")
	if code := p.stop(t); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	expect.Has(t, p.stderr.String(), `msg="slow request" operation=create path=/a session=0x`,
		"no slow request in")
	reads(file, "\toperation=serverStop\tresult=invoked\n")
}
