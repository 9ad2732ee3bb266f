package cluster

import (
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// peers() returns the first n servers in the form of --peers.
func (e *Ensemble) peers(n int) string {
	var list []string
	for _, s := range e.Servers[:n] {
		peer := strconv.Itoa(s.ID) + "=" + s.Peer
		if slices.Contains(e.Observers(), s) {
			peer += ":observer"
		}
		list = append(list, peer)
	}
	return strings.Join(list, ",")
}

// zlockdArgs builds the command lines of zlockd. It raises the limits that would disturb a test or benchmark,
// as zookeeperArgs does for ZooKeeper.
func (e *Ensemble) zlockdArgs(o Options) error {
	bin := o.Binary
	if bin == "" {
		var err error
		if bin, err = Binary(); err != nil {
			return err
		}
	}
	for i, s := range e.Servers {
		s.Args = append(slices.Clone(s.host.Exec),
			bin, "--id", strconv.Itoa(s.ID), "--client-addr", s.Client, "--peer-addr", s.Peer, "--admin-addr", s.Admin,
			"--max-client-cnxns", "0", "--4lw-whitelist", "*",
		)
		if o.Dev {
			s.Args = append(s.Args, "--dev")
		} else {
			s.Args = append(s.Args, "--data-dir", s.Data())
		}
		// The option --peers of a spare server names all servers, including the spare servers.
		if n := len(e.Servers) - e.spare; i >= n {
			s.Args = append(s.Args, "--peers", e.peers(len(e.Servers)))
		} else if n > 1 {
			s.Args = append(s.Args, "--peers", e.peers(n))
		}
		if len(o.Config) > 0 {
			file := filepath.Join(s.Dir, "extra.cfg")
			if err := os.WriteFile(file, []byte(strings.Join(o.Config, "\n")+"\n"), 0o600); err != nil {
				return err
			}
			s.Args = append(s.Args, "--config", file)
		}
		for _, f := range o.Flags {
			s.Args = append(s.Args, strings.ReplaceAll(f, "{id}", strconv.Itoa(s.ID)))
		}
	}
	return nil
}

// commandArgs fills in the placeholders of Options.Command.
func (e *Ensemble) commandArgs(o Options) {
	for _, s := range e.Servers {
		peers := e.peers(len(e.Servers))
		_, port, _ := net.SplitHostPort(s.Client)
		r := strings.NewReplacer("{id}", strconv.Itoa(s.ID), "{dir}", s.Dir, "{client}", s.Client, "{port}", port,
			"{peer}", s.Peer, "{admin}", s.Admin, "{peers}", peers,
			"{peer-urls}", strings.ReplaceAll(peers, "=", "=http://"))
		for _, w := range o.Command {
			s.Args = append(s.Args, r.Replace(w))
		}
	}
}

var (
	zlockdOnce = sync.OnceValues(func() (string, error) { return build("zlockd") })
	zlockOnce  = sync.OnceValues(func() (string, error) { return build("zlock") })
)

// tags are the build tags of this program. A test builds servers with the same tags.
var tags = func() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "-tags" {
				return s.Value
			}
		}
	}
	return ""
}()

// build() builds a program of this module and returns its path.
func build(program string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	// Each checkout and each set of build options has its own file, because tests of two checkouts must not run
	// each other's server.
	key := fnv.New64a()
	fmt.Fprint(key, root, "\x00", tags, "\x00", os.Getenv("GOFLAGS"))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("zlockd-test-bin-%d-%x", os.Getuid(), key.Sum64()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, program)
	// Build beside the target and rename, so that parallel runs cannot start a half-written file. The build
	// begins with a copy of the target, because go links it again only if something has changed.
	tmp := fmt.Sprintf("%s.%d", bin, os.Getpid())
	if last, err := os.ReadFile(bin); err == nil {
		if err := os.WriteFile(tmp, last, 0o755); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("go", "build", "-tags", tags, "-o", tmp, "./cmd/"+program)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/%s: %w\n%s", program, err, out)
	}
	return bin, os.Rename(tmp, bin)
}

// Binary returns the path of zlockd: ZLOCKD_BIN, or a build of this module.
func Binary() (string, error) {
	if bin := os.Getenv("ZLOCKD_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	return zlockdOnce()
}

// Zlock returns the path of zlock, built from this module.
func Zlock(t testing.TB) string {
	t.Helper()
	return must.Get(zlockOnce())(t)
}

// LinkZlock links zlock, built from this module, to another path. The program at that path stays the same if
// another package builds zlock again.
func LinkZlock(path string) error {
	bin, err := zlockOnce()
	if err != nil {
		return err
	}
	return os.Link(bin, path)
}

// ModuleRoot returns the directory of zlockd's go.mod.
func ModuleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/zlockd/zlockd").Output()
	if err != nil {
		return "", fmt.Errorf("not inside a module that uses zlockd: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
