package ticket_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Callers that make one file at once have one ticket, whole at every moment, and leave nothing else.
func TestTicketFileIsMadeAtOnce(t *testing.T) {
	for range 100 {
		dir := t.TempDir()
		file := filepath.Join(dir, "t")
		var all sync.WaitGroup
		var secrets sync.Map
		for range 8 {
			all.Go(func() {
				secret, of, err := ticket.Read(file, "/l")
				expect.OK(t, err)
				expect.Equal(t, of, "/l", "the path")
				secrets.Store(secret, true)
			})
		}
		all.Wait()
		different := 0
		secrets.Range(func(any, any) bool { different++; return true })
		expect.Equal(t, different, 1, "secrets")
		expect.Equal(t, must.Get(os.Stat(file))(t).Mode().Perm(), os.FileMode(0o600), "the mode")
		expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 1, "files")
	}
}
