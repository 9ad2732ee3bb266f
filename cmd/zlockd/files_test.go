package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestFilesThatOperatorsNameAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for size, ok := range map[int]bool{0: true, maxFile: true, maxFile + 1: false} {
		must.OK(t, os.WriteFile(path, make([]byte, size), 0o600))
		b, err := readFile(path)
		if (err == nil) != ok || ok && len(b) != size {
			t.Errorf("%d bytes: read %d, %v", size, len(b), err)
		}
	}
	must.OK(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	for _, args := range [][]string{
		{"--config", path},
		{"--dev", "--secure-client-addr", "127.0.0.1:0", "--tls-cert", path, "--tls-key", path},
	} {
		if _, err := readSettings(args); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%v: %v", args[0], err)
		}
	}
	expect.Fails(t, expect.Err(readFile("/dev/zero")), "a file without an end was read")
}
