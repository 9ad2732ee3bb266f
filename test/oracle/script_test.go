package oracle

import (
	"bytes"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestScriptsReadBack(t *testing.T) {
	g := NewGenerator(1, 1)
	g.restarts = true
	zxid := func(back int) int64 { return int64(back) }
	seen := map[string]bool{}
	for range 10000 {
		for _, name := range connNames {
			g.Learn([]Step{{Conn: name, Op: "ping"}}, nil, true)
		}
		for _, s := range g.Next() {
			p, err := Parse("# a comment\n\n" + s.String() + "\n")
			must.OK(t, err, "%v", s)
			if len(p) != 1 || p[0].String() != s.String() || !bytes.Equal(p[0].encode(zxid), s.encode(zxid)) {
				t.Fatalf("%v reads back as %v", s, p)
			}
			seen[s.Op] = true
		}
	}
	for op := range ops {
		if !seen[op] && op != "check" && op != "attach" {
			t.Errorf("the generator never makes %s", op)
		}
	}
}

func TestScriptErrorsNameTheLine(t *testing.T) {
	for _, text := range []string{"A fly", "A create path=\"/a", "A create flags=x",
		"A multi [check path=\"/a\" version=1", "A delete path=\"/a\" colour=1"} {
		_, err := Parse("A ping\n" + text)
		expect.That(t, err != nil && err.Error()[:6] == "line 2", "%q: %v", text, err)
	}
}
