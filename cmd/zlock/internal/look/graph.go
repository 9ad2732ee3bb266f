package look

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// WaitGraph is zlock wait-graph.
func WaitGraph() *call.Command {
	return &call.Command{
		Name: "wait-graph", Args: "[ROOT]", Paths: true, Most: 1,
		Does:   "show who waits for whom, over all locks below a path",
		Prints: []any{shownEdge{}, shownParty{}, incomplete{}},
		Help: `Marks cycles, whose members wait for each other forever. An edge is marked as
possible if one side is known only as a session, which may do several things at
a time. Exit code: 0, or 3 if there is a cycle.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			dot := fs.Bool("dot", false, "write a graph for graphviz")
			format := call.AddFormat(fs)
			server := addServerFlags(fs)
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				root := "/"
				if len(c.Args) == 1 {
					root = c.Args[0]
				}
				return look(c, server, conn, func(ctx context.Context, r reader) error {
					g, err := r.WaitGraph(ctx, root)
					if err != nil {
						return err
					}
					return showGraph(c, r, g, *format, *dot)
				})
			}
		},
	}
}

// shownParty is one end of a wait in JSON. shownEdge is the wait.
type shownParty struct {
	Task    string `json:"task,omitempty"`
	Session int64  `json:"session,string"`
	Label   string `json:"label"` // shows people the host, the process and the reason
}

type shownEdge struct {
	From     shownParty `json:"from"`
	To       shownParty `json:"to"`
	Path     string     `json:"path"`
	FromNode string     `json:"fromNode"`
	ToNode   string     `json:"toNode"`
	Possible bool       `json:"possible,omitempty"`
	Cycle    bool       `json:"cycle,omitempty"`
}

func shownEdgeOf(g *recipe.Graph, e *recipe.Edge) shownEdge {
	party := func(i int) shownParty {
		p := &g.Parties[i]
		return shownParty{p.Task, int64(p.Session), strings.TrimSpace(p.Label() + " " + p.Reason)}
	}
	return shownEdge{party(e.From), party(e.To), e.Path, e.FromNode, e.ToNode, g.Possible(e), e.Cycle}
}

func showGraph(c *call.Call, r reader, g *recipe.Graph, format string, dot bool) error {
	cycle := false
	p := c.Printer(format, "WAITER", "WAITS-FOR", "PATH", "NOTE")
	if dot {
		fmt.Fprintln(c.Stdout, "digraph locks {")
	}
	for i := range g.Edges {
		e := shownEdgeOf(g, &g.Edges[i])
		cycle = cycle || e.Cycle
		note, attrs := "", ""
		switch {
		case e.Cycle && e.Possible:
			note, attrs = "possible cycle", ", color=red, style=dashed"
		case e.Cycle:
			note, attrs = "cycle", ", color=red"
		case e.Possible:
			note, attrs = "possible", ", style=dashed"
		}
		if dot {
			fmt.Fprintf(c.Stdout, "  %q -> %q [label=%q%s];\n", call.Clean(e.From.Label),
				call.Clean(e.To.Label), call.Clean(e.Path), attrs)
			continue
		}
		p.Row(e, e.From.Label, e.To.Label, e.Path, note)
	}
	if dot {
		fmt.Fprintln(c.Stdout, "}")
	}
	tellLeft(c, p, r)
	if err := p.Flush(); err != nil {
		return err
	}
	if more := g.EdgeCount - len(g.Edges); more > 0 {
		c.Say("%d more waits are not shown", more)
	}
	if cycle {
		return cli.Exit(call.ExitCycle)
	}
	return nil
}
