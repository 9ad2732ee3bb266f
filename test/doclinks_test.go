package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Links in the comments of packages for other programs name only what exists.
func TestCommentsLinkToWhatThereIs(t *testing.T) {
	link := regexp.MustCompile(`(?:^|[^\w])\[\*?([A-Z]\w*(?:\.[A-Z]\w*)?)\]`)
	for _, dir := range []string{"client", "client/zk", "client/fence", "client/recipe", "server",
		"test/zlocktest"} {
		t.Run(dir, func(t *testing.T) {
			files := token.NewFileSet()
			known := map[string]bool{}
			comments := map[token.Pos]string{}
			for _, name := range must.Get(filepath.Glob(filepath.Join("..", dir, "*.go")))(t) {
				if strings.HasSuffix(name, "_test.go") {
					continue
				}
				f := must.Get(parser.ParseFile(files, name, nil, parser.ParseComments))(t)
				for _, group := range f.Comments {
					comments[group.Pos()] = group.Text()
				}
				for _, d := range f.Decls {
					declared(d, known)
				}
			}
			for at, text := range comments {
				for _, m := range link.FindAllStringSubmatch(text, -1) {
					expect.That(t, known[m[1]], "%v: [%s] is not declared", files.Position(at), m[1])
				}
			}
		})
	}
}

// declared() adds the names that a declaration declares. Before the name of a method or a field it puts the
// name of the type.
func declared(d ast.Decl, known map[string]bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if generic, ok := of.(*ast.IndexExpr); ok {
				of = generic.X
			}
			if id, ok := of.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		known[name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					known[n.Name] = true
				}
			case *ast.TypeSpec:
				known[s.Name.Name] = true
				ast.Inspect(s.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						for _, name := range f.Names {
							known[s.Name.Name+"."+name.Name] = true
						}
					}
					return true
				})
			}
		}
	}
}
