package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestEveryGuaranteeHasATest compares docs/guarantees.md with the tests. The page has one line for each
// number, and the tests that the line names exist. Each number in the name of a test is on the page.
func TestEveryGuaranteeHasATest(t *testing.T) {
	tests := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must.OK(t, filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			tests[m[1]] = true
		}
		return err
	}))
	b := must.Get(os.ReadFile("../docs/guarantees.md"))(t)
	lines := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([GRFL]\d+) \|.*\|(.*)\|$`).FindAllStringSubmatch(string(b),
		-1) {
		expect.Equal(t, lines[m[1]], "", "%s has two lines", m[1])
		lines[m[1]] = m[2]
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(m[2], -1)
		if len(named) == 0 {
			t.Errorf("%s names no test", m[1])
		}
		for _, n := range named {
			if !tests[n[1]] {
				t.Errorf("%s names %s, which is no test", m[1], n[1])
			}
		}
	}
	for i := 1; i <= 26; i++ {
		for _, number := range []string{fmt.Sprintf("G%d", i), fmt.Sprintf("R%d", i)} {
			expect.That(t, lines[number] != "", "%s has no line", number)
		}
	}
	number := regexp.MustCompile(`[GRFL]\d+`)
	for test := range tests {
		for _, n := range number.FindAllString(test, -1) {
			expect.That(t, lines[n] != "", "%s is named after %s, which has no line", test, n)
		}
	}
}

// R7: go.mod requires the tested versions of raft and its stores, or newer ones.
func TestR7StoresAreNotOlderThanTested(t *testing.T) {
	b := must.Get(os.ReadFile("../go.mod"))(t)
	for module, least := range map[string][3]int{
		"go.etcd.io/bbolt": {1, 4, 3}, "github.com/hashicorp/raft": {1, 7, 3},
		"github.com/hashicorp/raft-boltdb/v2": {2, 3, 1},
	} {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(
			string(b))
		if m == nil {
			t.Errorf("go.mod does not name %s", module)
			continue
		}
		var v [3]int
		fmt.Sscanf(strings.Join(m[1:], " "), "%d %d %d", &v[0], &v[1], &v[2])
		if v[0] < least[0] || v[0] == least[0] && (v[1] < least[1] || v[1] == least[1] && v[2] < least[2]) {
			t.Errorf("%s is %v, must be %v or newer", module, v, least)
		}
	}
}

// R20: raft's own restore would set back the zxid and the sessions, so no running code may call it.
func TestR20RaftRestoreIsNotReachable(t *testing.T) {
	for _, dir := range []string{"../raftfsm", "../server", "../server/admin", "../cmd/zlockd/daemon",
		"../cmd/zlockd/internal/data"} {
		files := must.Get(filepath.Glob(dir + "/*.go"))(t)
		for _, f := range files {
			b := must.Get(os.ReadFile(f))(t)
			if strings.Contains(string(b), "raft.Restore(") || strings.Contains(string(b), "raft.RecoverCluster(") &&
				!strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s takes raft back", f)
			}
		}
	}
}

// Every test that docs/limits.md names exists.
func TestLimitsNameTestsThatExist(t *testing.T) {
	page := must.Get(os.ReadFile("../docs/limits.md"))(t)
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	expect.That(t, len(names) >= 20, "only %d tests are named", len(names))
	out, err := exec.Command("git", "-C", "..", "grep", "-h", "^func Test").Output()
	if err != nil {
		t.Skip("not a clone: ", err)
	}
	for _, n := range names {
		expect.Has(t, string(out), "func "+n[1]+"(", "%s does not exist", n[1])
	}
}

// The commands of SECURITY.md check the files of make sign, and find a changed file.
func TestSignedChecksumsCanBeChecked(t *testing.T) {
	if _, err := exec.LookPath("minisign"); err != nil {
		must.Equal(t, os.Getenv("ZLTEST_REQUIRE_STOCK"), "", "the program minisign")
		t.Skip("the program minisign is not installed")
	}
	page := must.Get(os.ReadFile("../SECURITY.md"))(t)
	m := regexp.MustCompile("(?s)\n## Checking a download\n.*?\n```sh\n(.*?)```").FindSubmatch(page)
	must.That(t, m != nil, "SECURITY.md has no commands to check a download")
	dir := t.TempDir()
	run := func(where, command string) error {
		cmd := exec.Command("sh", "-e", "-c", command)
		cmd.Dir = where
		out, err := cmd.CombinedOutput()
		t.Logf("%s\n%s", command, out)
		return err
	}
	must.OK(t, run(dir, "echo 1 >zlockd.tar.gz; sha256sum zlockd.tar.gz >SHA256SUMS; minisign -G -W -p key.pub -s key"))
	must.OK(t, run("..", "make --no-print-directory sign KEY="+filepath.Join(dir, "key")+" DIST="+dir))
	key := strings.Fields(string(must.Get(os.ReadFile(filepath.Join(dir, "key.pub")))(t)))
	commands := strings.Replace(string(m[1]), "PUBLIC-KEY", key[len(key)-1], 1)
	must.OK(t, run(dir, commands))
	for _, change := range []string{"echo 2 >zlockd.tar.gz", "sha256sum zlockd.tar.gz >SHA256SUMS"} {
		must.OK(t, run(dir, change))
		expect.That(t, run(dir, commands) != nil, "after %s nothing is found wrong", change)
	}
}

// byText lists the functions that may look at an error's text, each with the reason.
var byText = map[string]string{
	"raftfsm/disk/watchdog.go":       "missing", // raft's stores have no value for this error
	"client/internal/hold/errors.go": "ErrorAt", // it adds a path to the text once, and decides nothing by it
}

// Errors that travel between programs have a code (package raftfsm/status), other errors have a value. The
// text of an error is for people: no program decides by it.
func TestErrorsAreToldByTheirCode(t *testing.T) {
	must.OK(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (path == "../test" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && byText[strings.TrimPrefix(path, "../")] == f.Name.Name {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if n != nil && looksAtText(n) {
					t.Errorf("%s looks at the text of an error", files.Position(n.Pos()))
				}
				return true
			})
		}
		return nil
	}))
}

func looksAtText(n ast.Node) bool {
	switch n := n.(type) {
	// The Error() of raft's futures returns an error, not a text, so a comparison with nil is right.
	case *ast.BinaryExpr:
		nilled := isIdent(n.X, "nil") || isIdent(n.Y, "nil")
		return (n.Op == token.EQL || n.Op == token.NEQ) && !nilled && (isText(n.X) || isText(n.Y))
	case *ast.SwitchStmt:
		return isText(n.Tag)
	case *ast.CallExpr: // only these functions decide something by a text; others cut or replace it
		f, ok := n.Fun.(*ast.SelectorExpr)
		return ok && isIdent(f.X, "strings") && len(n.Args) > 1 && fromText(n.Args[0]) &&
			slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Compare"},
				f.Sel.Name)
	}
	return false
}

// fromText reports whether an expression contains X.Error(), or is a variable made from it.
func fromText(e ast.Node) (found bool) {
	if v, ok := e.(*ast.Ident); ok && v.Obj != nil {
		if made, ok := v.Obj.Decl.(*ast.AssignStmt); ok && len(made.Rhs) == 1 {
			e = made.Rhs[0]
		}
	}
	ast.Inspect(e, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		found = found || ok && isText(c)
		return true
	})
	return found
}

// isText reports whether an expression is X.Error().
func isText(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok || len(c.Args) > 0 {
		return false
	}
	f, ok := c.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Error"
}

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}
