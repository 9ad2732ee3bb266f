package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// byText are the functions that may look at the text of an error, each with its reason.
var byText = map[string]string{
	"raftfsm/disk/watchdog.go": "missing", // raft's stores have no value for it
	"client/errors.go":         "errorAt", // puts a path into the text, once: nothing else depends on it
}

// TestErrorsAreToldByTheirCode: an error that travels between programs has a
// code (package raftfsm/status), any other a value; its text is for people.
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
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
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
	case *ast.BinaryExpr: // a comparison with nil is of a future of raft's
		nilled := isIdent(n.X, "nil") || isIdent(n.Y, "nil")
		return (n.Op == token.EQL || n.Op == token.NEQ) && !nilled && (isText(n.X) || isText(n.Y))
	case *ast.SwitchStmt:
		return isText(n.Tag)
	case *ast.CallExpr: // to cut or replace a text is not to decide by it
		f, ok := n.Fun.(*ast.SelectorExpr)
		return ok && isIdent(f.X, "strings") && len(n.Args) > 1 && isText(n.Args[0]) &&
			slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Compare"},
				f.Sel.Name)
	}
	return false
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
