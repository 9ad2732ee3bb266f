package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// spot is a place where one small edit plants a bug: it replaces the text from..to of a file.
type spot struct {
	file     string // relative to the module
	line     int
	fn       string // name of the function that contains the spot
	kind     string
	from, to int
	was, is  string
}

// String names the spot without its line, so that a line about it in testdata/equivalent.tsv stays valid
// after edits elsewhere in the file.
func (s spot) String() string {
	return fmt.Sprintf("%s %s: %s: %s", s.file, s.fn, s.kind, oneLine(s.was))
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 90 {
		text = text[:90] + "…"
	}
	return text
}

// spots() finds each place in a package's sources where an edit can negate a condition, remove a statement,
// or return nil instead of an error.
func spots(root, pkg string) (list []spot, err error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		if constraint.Match(src) {
			continue // this file is not built on every system, so its edits might not be noticed here
		}
		in, err := spotsIn(filepath.ToSlash(name), src)
		if err != nil {
			return nil, err
		}
		list = append(list, in...)
	}
	return list, nil
}

var constraint = regexp.MustCompile(`(?m)^//go:build (.*)$`)

func spotsIn(name string, src []byte) (list []spot, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		add := func(n ast.Node, kind, is string) {
			from, to := fset.Position(n.Pos()), fset.Position(n.End())
			list = append(list, spot{file: name, line: from.Line, fn: fn.Name.Name, kind: kind,
				from: from.Offset, to: to.Offset, was: string(src[from.Offset:to.Offset]), is: is})
		}
		// An error can become nil only in a function whose last result is an error: `types` holds the function and
		// the function literals around the present node, the innermost last.
		var types []*ast.FuncType
		types = append(types, fn.Type)
		var walk func(n ast.Node)
		walk = func(n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					types = append(types, n.Type)
					walk(n.Body)
					types = types[:len(types)-1]
					return false
				case *ast.IfStmt:
					add(n.Cond, "turned round", "!("+text(fset, src, n.Cond)+")")
				case *ast.ForStmt:
					if n.Cond != nil {
						add(n.Cond, "turned round", "!("+text(fset, src, n.Cond)+")")
					}
				case *ast.BinaryExpr:
					if is := twin[n.Op]; is != token.ILLEGAL {
						add(n, "compared otherwise", text(fset, src, n.X)+" "+is.String()+" "+text(fset, src, n.Y))
					}
				case *ast.BlockStmt:
					for _, s := range n.List {
						if droppable(s) {
							add(s, "dropped", "")
						}
					}
				case *ast.CaseClause:
					for _, s := range n.Body {
						if droppable(s) {
							add(s, "dropped", "")
						}
					}
				case *ast.ReturnStmt:
					results := types[len(types)-1].Results
					if k := len(n.Results); k > 0 && results != nil && results.NumFields() == k &&
						isIdent(results.List[len(results.List)-1].Type, "error") && !isIdent(n.Results[k-1], "nil") {
						add(n.Results[k-1], "error as nil", "nil")
					}
				}
				return true
			})
		}
		walk(fn.Body)
	}
	return list, nil
}

// twin maps an operator to the operator that is easily confused with it.
var twin = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// droppable() reports whether the program still compiles without a statement, but behaves differently. A log
// line is not droppable.
func droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !isIdent(call.Fun, "panic") && !logs(call)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !isIdent(s.Lhs[0], "_")
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
		return true
	}
	return false
}

// logs() reports whether a call only writes a line of the log.
func logs(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch sel.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
		return true
	}
	return false
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func text(fset *token.FileSet, src []byte, n ast.Node) string {
	return string(src[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset])
}
