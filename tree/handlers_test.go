package tree_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestEveryHandlerAsksForPermission reads the package: whatever Apply, a multi
// or a read runs for a client must come to Grants, except where the rules
// ask for no permission. A new operation that forgets it fails here.
func TestEveryHandlerAsksForPermission(t *testing.T) {
	free := map[string]string{
		"AppendExists":     "exists needs no permission",
		"AppendEphemerals": "the session's own nodes",
	}
	calls := callGraph(t)
	handlers := map[string]bool{"CatchUp": true, "Take": true}
	for name := range calls {
		if strings.HasPrefix(name, "Append") {
			handlers[name] = true
		}
	}
	for _, from := range []string{"Apply", "step"} {
		for name := range calls[from] {
			switch name {
			case "create", "delete", "setDataOf", "setACL", "check", "multi":
				handlers[name] = true
			}
		}
	}
	expect.That(t, len(handlers) >= 14, "only %d handlers found: %v", len(handlers), handlers)
	for name := range handlers {
		expect.That(t, free[name] != "" || reaches(calls, name, "Grants", map[string]bool{}),
			"%s asks for no permission", name)
	}
	for name := range free {
		expect.That(t, handlers[name] && !reaches(calls, name, "Grants", map[string]bool{}),
			"%s is no exception any more", name)
	}
}

// callGraph returns, for every function and method of the tree, the names of
// what it calls. Snapshots are no concern of clients.
func callGraph(t *testing.T) map[string]map[string]bool {
	entries := must.Get(os.ReadDir("."))(t)
	calls := map[string]map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") ||
			e.Name() == "snapshot.go" {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0))(t)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			called := map[string]bool{}
			calls[f.Name.Name] = called
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					switch fun := c.Fun.(type) {
					case *ast.Ident:
						called[fun.Name] = true
					case *ast.SelectorExpr:
						called[fun.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	return calls
}

func reaches(calls map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for name := range calls[from] {
		if reaches(calls, name, to, seen) {
			return true
		}
	}
	return false
}
