package look

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

func TestGraphTellsWhatIsSure(t *testing.T) {
	g := &recipe.Graph{Parties: []recipe.Party{{Task: "a"}, {Task: "b"}}}
	for _, e := range []recipe.Edge{{}, {Watch: true}, {Cycle: true}, {Cycle: true, Any: true}} {
		e.To, e.Path = 1, "/l"
		g.Edges = append(g.Edges, e)
	}
	for _, c := range []struct {
		dot  bool
		want string
	}{
		{false, "a\tb\t/l\t\na\tb\t/l\tpossible\na\tb\t/l\tcycle\na\tb\t/l\tpossible cycle\n"},
		{true, "digraph locks {\n" +
			`  "a" -> "b" [label="/l"];` + "\n" +
			`  "a" -> "b" [label="/l", style=dashed];` + "\n" +
			`  "a" -> "b" [label="/l", color=red];` + "\n" +
			`  "a" -> "b" [label="/l", color=red, style=dashed];` + "\n}\n"},
	} {
		var out strings.Builder
		a := &call.App{Stdout: &out, Getenv: func(string) string { return "" }}
		showGraph(&call.Call{App: a}, view{}, g, "plain", c.dot)
		if out.String() != c.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
		}
	}
}
