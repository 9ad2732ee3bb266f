package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const module = "github.com/zlockd/zlockd/"

// The table allowed is that of docs/architecture.md: which of our packages a package may import.
// Packages below test may import any package.
var allowed = map[string][]string{
	"jute":                {},
	"tree":                {"jute", "client/recipe", "tree/acl", "tree/digest", "tree/bounds", "tree/internal/nodes"},
	"tree/acl":            {"jute", "tree/digest"},
	"tree/digest":         {},
	"tree/internal/nodes": {"jute", "tree/acl", "tree/bounds", "tree/watches"},
	"tree/bounds":         {"jute"},
	"tree/watches":        {"jute"},
	"tree/zkfiles":        {"jute", "tree", "tree/bounds"},
	"session":             {"jute"},
	"raftfsm": {"jute", "raftfsm/state", "raftfsm/state/config", "raftfsm/state/entries",
		"raftfsm/disk", "raftfsm/peer", "raftfsm/apply", "raftfsm/elect", "raftfsm/status",
		"raftfsm/change", "raftfsm/leading", "raftfsm/signal", "raftfsm/stream", "raftfsm/consensus",
		"raftfsm/form", "raftfsm/restore", "raftfsm/serving", "raftfsm/upkeep"},
	"raftfsm/apply": {"jute", "tree", "tree/bounds", "session", "raftfsm/disk", "raftfsm/signal",
		"raftfsm/state",
		"raftfsm/state/entries", "raftfsm/status", "raftfsm/stream"},
	"raftfsm/followers": {"session", "raftfsm/apply", "raftfsm/consensus", "raftfsm/peer",
		"raftfsm/signal", "raftfsm/state",
		"raftfsm/state/entries", "raftfsm/status"},
	"raftfsm/serving": {"raftfsm/apply", "raftfsm/peer", "raftfsm/signal", "raftfsm/status"},
	"raftfsm/leading": {"session", "raftfsm/apply", "raftfsm/change", "raftfsm/consensus",
		"raftfsm/disk", "raftfsm/elect", "raftfsm/followers", "raftfsm/form", "raftfsm/peer",
		"raftfsm/restore", "raftfsm/serving", "raftfsm/signal", "raftfsm/state",
		"raftfsm/state/config", "raftfsm/state/entries", "raftfsm/status", "raftfsm/stream",
		"raftfsm/upkeep"},
	"raftfsm/restore": {"jute", "raftfsm/signal", "raftfsm/state", "raftfsm/status", "raftfsm/stream"},
	"raftfsm/upkeep":  {"raftfsm/disk", "raftfsm/signal", "raftfsm/state"},
	"raftfsm/form": {"raftfsm/disk", "raftfsm/elect", "raftfsm/peer", "raftfsm/signal",
		"raftfsm/state/config"},
	"raftfsm/consensus": {"raftfsm/disk", "raftfsm/elect", "raftfsm/peer", "raftfsm/status", "raftfsm/stream"},
	"raftfsm/signal":    {},
	"raftfsm/stream": {"jute", "raftfsm/signal", "raftfsm/state",
		"raftfsm/state/entries"},
	"raftfsm/change": {"raftfsm/status"},
	"raftfsm/elect":  {"raftfsm/peer"},
	"raftfsm/peer": {"jute", "raftfsm/change", "raftfsm/state",
		"raftfsm/state/entries", "raftfsm/status", "raftfsm/tlsfiles"},
	"raftfsm/disk": {"raftfsm/state",
		"raftfsm/state/entries", "raftfsm/seglog", "raftfsm/disk/snapshots", "raftfsm/vfs"},
	"raftfsm/disk/snapshots": {"raftfsm/vfs"},
	"raftfsm/state": {"jute", "tree", "tree/bounds", "tree/acl", "session", "raftfsm/state/config",
		"raftfsm/state/entries", "raftfsm/state/window"},
	"raftfsm/state/config":  {},
	"raftfsm/state/entries": {"jute"},
	"raftfsm/state/window":  {"jute"},
	"raftfsm/status":        {},
	"raftfsm/seglog":        {"raftfsm/vfs"},
	"raftfsm/vfs":           {},
	"server": {"jute", "session", "raftfsm", "raftfsm/change", "raftfsm/state", "raftfsm/state/config",
		"raftfsm/status", "raftfsm/disk", "raftfsm/tlsfiles", "server/admin", "server/machine",
		"server/report", "server/admin/port", "server/audit", "server/backup", "server/clients",
		"server/clients/entrance", "server/clients/identity", "server/clients/options",
		"server/members", "server/metrics", "server/observe", "server/sasl", "server/view",
		"server/tickets", "tree"},
	"server/audit": {"jute", "tree", "server/admin/port", "server/observe"},
	"server/clients": {"raftfsm/state", "server/report", "server/clients/conn", "server/clients/ends",
		"server/clients/entrance", "server/clients/options", "server/clients/watchers", "server/metrics",
		"server/observe", "tree"},
	"server/clients/conn": {"jute", "raftfsm/state", "raftfsm/state/config", "server/report",
		"server/clients/budget", "server/clients/ends", "server/clients/entrance",
		"server/clients/identity", "server/clients/inbox", "server/clients/options",
		"server/clients/outbox", "server/clients/request", "server/clients/rest",
		"server/clients/watchers", "server/metrics", "server/observe", "server/sasl", "session",
		"tree", "tree/bounds", "tree/acl", "tree/watches"},
	"server/clients/entrance": {"raftfsm/state"},
	"server/clients/options": {"jute", "tree", "server/machine", "server/clients/identity",
		"server/clients/inbox", "server/observe", "server/sasl"},
	"server/clients/outbox": {"jute", "server/clients/budget", "server/clients/ends", "server/metrics",
		"server/observe"},
	"server/clients/watchers": {"jute", "tree", "tree/acl", "tree/watches", "server/clients/budget",
		"server/clients/ends",
		"server/clients/identity", "server/clients/outbox"},
	"server/clients/budget":   {"server/clients/ends", "tree/bounds"},
	"server/clients/ends":     {},
	"server/clients/request":  {"jute", "tree", "tree/bounds", "tree/watches"},
	"server/clients/inbox":    {"jute"},
	"server/clients/rest":     {},
	"server/clients/identity": {"jute", "tree/acl", "raftfsm/state/entries", "server/sasl"},
	"server/observe":          {"jute", "raftfsm/state", "server/report", "server/metrics"},
	"server/admin": {"raftfsm/change", "raftfsm/state/config", "raftfsm/status",
		"server/admin/exporter", "server/admin/port", "server/members", "server/metrics",
		"server/report"},
	"server/metrics":        {},
	"server/admin/port":     {},
	"server/admin/exporter": {"server/machine", "server/metrics", "server/report"},
	"server/report":         {"raftfsm/status", "server/metrics"},
	"server/machine":        {"server/report"},
	"server/members":        {"raftfsm/change", "raftfsm/state/config", "raftfsm/status"},
	"server/locks":          {"jute", "tree", "tree/bounds", "client/recipe", "client/recipe/turns"},
	"server/view": {"client/recipe", "client/recipe/waits", "jute", "raftfsm/state", "raftfsm/status",
		"server/report", "server/admin/port", "server/locks", "server/observe", "server/view/act",
		"server/view/answer", "server/view/ask", "server/view/look", "session", "tree"},
	"server/view/act": {"client/recipe", "jute", "raftfsm/state", "server/report", "server/admin/port",
		"server/view/answer", "server/view/ask", "server/view/look", "session", "tree/acl"},
	"server/view/ask": {"client/recipe", "server/report", "server/admin/port", "server/view/answer"},
	"server/view/look": {"client/recipe", "client/recipe/turns", "client/recipe/waits",
		"raftfsm/state", "server/locks", "server/view/ask", "session",
		"tree"},
	"server/view/answer": {"client/recipe"},
	"server/tickets": {"jute", "tree", "tree/bounds", "tree/acl", "session", "raftfsm/secretfile",
		"raftfsm/state", "raftfsm/state/window", "client/fence", "client/recipe", "client/recipe/turns",
		"server/clients/identity"},
	"server/sasl": {"raftfsm/secretfile"},
	"cmd/zlockd":  {"cmd/zlockd/daemon"},
	"cmd/zlockd/daemon": {"cmd/zlockd/internal/settings", "cmd/zlockd/internal/data", "server",
		"server/machine", "server/report", "server/audit", "server/clients/options", "server/sasl",
		"server/tickets", "raftfsm/disk", "raftfsm/tlsfiles", "cmd/internal/cli", "cmd/internal/release"},
	"cmd/zlockd/internal/settings": {"server", "server/admin", "server/clients/options", "server/sasl",
		"server/tickets", "server/backup", "raftfsm", "raftfsm/state/config", "raftfsm/state/entries",
		"raftfsm/disk", "raftfsm/secretfile", "raftfsm/tlsfiles", "cmd/internal/cli"},
	"cmd/zlockd/internal/data": {"raftfsm/offline", "raftfsm/state/config", "tree", "tree/zkfiles",
		"client/zk", "cmd/internal/cli"},
	"client": {"client/fence", "client/internal/hold", "client/internal/inspect", "client/internal/session",
		"client/internal/take", "client/recipe", "client/recipe/turns", "client/recipe/waits", "client/zk"},
	"client/internal/take": {"client/fence", "client/internal/hold", "client/internal/session", "client/recipe",
		"client/recipe/turns",
		"client/zk"},
	"client/internal/hold": {"client/fence", "client/internal/session", "client/recipe", "client/zk"},
	"client/internal/inspect": {"client/fence", "client/internal/session", "client/recipe",
		"client/recipe/turns", "client/zk"},
	"client/internal/session": {"client/recipe", "client/zk"},
	"client/recipe":           {},
	"client/recipe/turns":     {"client/recipe"},
	"client/recipe/waits":     {"client/recipe"},
	"client/fence":            {},
	"client/zk":               {"jute"},
	"cmd/zlock": {"cmd/zlock/internal/call", "cmd/zlock/internal/connect", "cmd/zlock/internal/look",
		"cmd/zlock/internal/manage", "cmd/zlock/internal/node", "cmd/zlock/internal/run",
		"cmd/zlock/internal/ticket", "cmd/internal/cli"},
	"cmd/zlock/internal/run": {"cmd/zlock/internal/call", "cmd/zlock/internal/connect",
		"cmd/zlock/internal/supervise", "cmd/zlock/internal/ticket", "cmd/internal/cli", "client",
		"client/fence", "client/recipe", "client/zk"},
	"cmd/zlock/internal/ticket": {"cmd/zlock/internal/call", "cmd/internal/cli", "cmd/internal/release"},
	"cmd/zlock/internal/look": {"cmd/zlock/internal/call", "cmd/zlock/internal/connect",
		"cmd/internal/cli", "client", "client/fence", "client/recipe", "client/zk",
		"raftfsm/state/config", "server/view/answer"},
	"cmd/zlock/internal/manage": {"cmd/zlock/internal/call", "cmd/zlock/internal/connect",
		"cmd/internal/cli", "client", "client/fence", "client/recipe", "raftfsm/change", "raftfsm/state",
		"raftfsm/status", "raftfsm/vfs", "server/view/answer", "tree/zkfiles"},
	"cmd/zlock/internal/node": {"cmd/zlock/internal/call", "cmd/zlock/internal/connect", "cmd/internal/cli",
		"cmd/internal/release", "client/zk", "jute", "server/view/answer"},
	"cmd/zlock/internal/connect": {"cmd/zlock/internal/call", "cmd/internal/cli", "client", "client/recipe",
		"client/zk", "raftfsm/status", "server/view/answer"},
	"cmd/zlock/internal/call": {"cmd/zlock/internal/supervise", "cmd/internal/cli", "client/recipe",
		"server/view/answer"},
	"cmd/zlock/internal/supervise": {"cmd/internal/cli"},

	"cmd/internal/cli":     {"client/zk", "cmd/internal/release"},
	"cmd/internal/release": {},
	"raftfsm/tlsfiles":     {"raftfsm/secretfile"},
	"raftfsm/secretfile":   {},

	"server/backup": {"raftfsm/apply", "raftfsm/restore", "raftfsm/upkeep", "raftfsm/state",
		"raftfsm/offline", "raftfsm/vfs", "server/admin/port"},
	"raftfsm/offline": {"jute", "tree", "tree/zkfiles", "session", "raftfsm/state",
		"raftfsm/state/config", "raftfsm/state/entries", "raftfsm/disk", "raftfsm/vfs"},
}

// A pure package has no access to a clock, the network, files or locks.
var pure = []string{"jute", "tree", "tree/acl", "tree/bounds", "tree/digest", "tree/internal/nodes",
	"tree/watches", "tree/zkfiles", "session",
	"raftfsm/change", "raftfsm/state", "raftfsm/state/entries", "raftfsm/state/window", "raftfsm/status",
	"server/clients/request", "server/locks", "server/view/answer", "client/recipe", "client/recipe/turns",
	"client/recipe/waits"}

var impure = []string{"net", "os", "sync", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand",
	"context", "io/fs", "runtime"}

func TestImportsMatchTheArchitecture(t *testing.T) {
	out := must.Get(exec.Command("go", "list", "-f",
		`{{.ImportPath}}:{{join .Imports ","}}`,
		module+"...").Output())(t)
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, imports, _ := strings.Cut(line, ":")
		pkg := strings.TrimPrefix(path, module)
		if strings.HasPrefix(pkg+"/", "test/") || strings.HasPrefix(pkg+"/", "examples/") {
			continue
		}
		may, known := allowed[pkg]
		if !known {
			t.Errorf("package %s is not in the picture", pkg)
			continue
		}
		seen[pkg] = true
		for _, ours := range may { // a missing import counts on Linux only: files for other systems may have it
			expect.That(t, runtime.GOOS != "linux" || slices.Contains(strings.Split(imports, ","), module+ours),
				"%s may import %s, and does not: take the leave away", pkg, ours)
		}
		for _, imp := range strings.Split(imports, ",") {
			ours, ok := strings.CutPrefix(imp, module)
			expect.That(t, !ok || slices.Contains(may, ours), "%s imports %s", pkg, ours)
			expect.That(t, imp != "github.com/go-zookeeper/zk",
				"%s imports a stock client; package client/zk is ours", pkg)
			atomic := pkg == "tree/internal/nodes" && imp == "sync/atomic"
			if slices.Contains(pure, pkg) && slices.Contains(impure, imp) && !atomic {
				t.Errorf("%s imports %s, but is to be pure", pkg, imp)
			}
		}
	}
	clock := regexp.MustCompile(`time\.(Now|Since|Until|Sleep|After|Tick|New)`)
	for _, pkg := range pure {
		files := must.Get(filepath.Glob("../" + pkg + "/*.go"))(t)
		for _, f := range files {
			b := must.Get(os.ReadFile(f))(t)
			expect.That(t, strings.HasSuffix(f, "_test.go") || !clock.Match(b), "%s looks at a clock", f)
		}
	}
	for pkg := range allowed {
		expect.That(t, seen[pkg], "package %s of the picture does not exist", pkg)
	}
}

// Only the Kerberos module needs a Kerberos library. A program that imports a package of zlockd does not get
// this library.
func TestKerberosIsAModuleOfItsOwn(t *testing.T) {
	for _, file := range []string{"../go.mod", "../go.sum"} {
		text := string(must.Get(os.ReadFile(file))(t))
		expect.That(t, !strings.Contains(text, "jcmturner"), "%s names a library for Kerberos", file)
	}
	list := exec.Command("go", "list", "-deps", "./cmd/zlockd-kerberos")
	list.Dir = "../server/sasl/kerberos"
	out := must.Get(list.Output())(t)
	expect.Has(t, string(out), "/gokrb5/", "what zlockd-kerberos links")
}
