package golden

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestNamesOfExpressions(t *testing.T) {
	for expr, want := range map[string][]string{
		`up{job="zlockd", x=~"a{2}b"} == 0`: {"up"},
		`sum by (job) (rate(a_sum{i="$x"}[5m])) / rate(a_count[1m]) > 2`: {
			"a_sum", "a_count"},
		`max by (job) (a) - on (job) group_right () b > 10`: {"a", "b"},
		`clamp_max(leader_uptime, 1) or clamp_max(num_alive_connections{}, 0)`: {
			"leader_uptime", "num_alive_connections"},
		`histogram_quantile(0.9, sum without (id) (rate(x_bucket[$__rate_interval] offset 1m)))`: {"x_bucket"},
	} {
		expect.List(t, Names(expr), want, "%s", expr)
	}
}

func TestOurBoardHasQueries(t *testing.T) {
	list := must.Get(Ours())(t)
	expect.That(t, len(list) >= 40, "%d queries", len(list))
	for _, q := range list {
		expect.That(t, len(Names(Expand(q.Expr))) != 0, "%s asks for nothing: %q", q.Panel, q.Expr)
	}
}
