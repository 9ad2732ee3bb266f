package client

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The comment of package recipe lists exactly those of its types that a user of package client can reach.
func TestReachableTypesOfRecipeArePromised(t *testing.T) {
	t.Parallel()
	const recipes = "github.com/zlockd/zlockd/client/recipe"
	seen := map[reflect.Type]bool{}
	var reach func(reflect.Type)
	reach = func(x reflect.Type) {
		if x == nil || seen[x] {
			return
		}
		seen[x] = true
		if path := x.PkgPath(); path != "" && !strings.HasPrefix(path, "github.com/zlockd/zlockd/") {
			return
		}
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			reach(x.Elem())
		case reflect.Map:
			reach(x.Key())
			reach(x.Elem())
		case reflect.Func:
			for i := range x.NumIn() {
				reach(x.In(i))
			}
			for i := range x.NumOut() {
				reach(x.Out(i))
			}
		case reflect.Struct:
			for i := range x.NumField() {
				if f := x.Field(i); f.IsExported() {
					reach(f.Type)
				}
			}
		}
		for _, v := range []reflect.Type{x, reflect.PointerTo(x)} {
			if x.Name() == "" {
				break
			}
			for i := range v.NumMethod() {
				m := v.Method(i).Type
				if x.PkgPath() == recipes {
					continue // the types of arguments need not be on the list
				}
				for j := 1; j < m.NumIn(); j++ {
					reach(m.In(j))
				}
				for j := range m.NumOut() {
					reach(m.Out(j))
				}
			}
		}
	}
	for _, v := range []any{Dial, WithPolicy, WithLayout, PolicyFair, LayoutCurator, &LostError{}, Leader{}} {
		reach(reflect.TypeOf(v))
	}
	var found []string
	for x := range seen {
		if x.PkgPath() == recipes {
			found = append(found, x.Name())
		}
	}
	slices.Sort(found)
	doc := string(must.Get(os.ReadFile("recipe/doc.go"))(t))
	_, list, ok := strings.Cut(doc, "promised with it:")
	must.That(t, ok, "recipe/doc.go has no list of promised types")
	list, _, _ = strings.Cut(list, ".")
	promised := strings.Fields(strings.NewReplacer("//", "", ",", "", " and ", " ").Replace(list))
	slices.Sort(promised)
	expect.List(t, promised, found)
}
