// Messages prints every text that a user or an operator can read in a message of the programs: errors, log
// lines, help, advice. Read the table whole to find the sentences that have to be read twice.
//
//	go run ./test/messages [FOLDER ...]
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	folders := os.Args[1:]
	if len(folders) == 0 {
		folders = []string{"client", "cmd", "jute", "raftfsm", "server", "session", "tree"}
	}
	n := 0
	for _, folder := range folders {
		must(filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmp.Or(err, filepath.SkipDir)
			}
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, m := range messages(f) {
				fmt.Printf("%s:%d\t%s\t%s\n", path, set.Position(m.at).Line, m.kind, m.text)
				n++
			}
			return nil
		}))
	}
	fmt.Fprintf(os.Stderr, "%d messages\n", n)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// message is a text. If it is an argument of a call, `kind` names the called function.
type message struct {
	at         token.Pos
	kind, text string
}

// messages() returns the texts of a file that have more than one word, in the order of their places. The
// parts of a text that is joined with + are one message.
func messages(f *ast.File) (all []message) {
	var walk func(n ast.Node, kind string)
	walk = func(n ast.Node, kind string) {
		ast.Inspect(n, func(at ast.Node) bool {
			switch at := at.(type) {
			case *ast.ImportSpec, *ast.Field: // paths of imports and tags of fields are not messages
				return false
			case *ast.CallExpr:
				walk(at.Fun, kind)
				for _, arg := range at.Args {
					walk(arg, name(at.Fun))
				}
				return false
			case ast.Expr:
				text, ok := joined(at)
				if !ok {
					return true
				}
				if len(strings.Fields(text)) > 2 {
					all = append(all, message{at.Pos(), kind, strconv.Quote(text)})
				}
				return false
			}
			return true
		})
	}
	walk(f, "")
	slices.SortStableFunc(all, func(a, b message) int { return cmp.Compare(a.at, b.at) })
	return all
}

// joined() returns the text of a literal, or of literals that are joined.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		a, ok := joined(e.X)
		b, fine := joined(e.Y)
		return a + b, ok && fine && e.Op == token.ADD
	}
	return "", false
}

func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
