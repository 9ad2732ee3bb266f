package boards

import (
	"slices"
	"testing"

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
		if got := Names(expr); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", expr, got, want)
		}
	}
}

func TestOurBoardHasQueries(t *testing.T) {
	list := must.Get(Ours())(t)
	if len(list) < 40 {
		t.Errorf("%d queries", len(list))
	}
	for _, q := range list {
		if len(Names(Expand(q.Expr))) == 0 {
			t.Errorf("%s asks for nothing: %q", q.Panel, q.Expr)
		}
	}
}
