package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Query is one expression of a dashboard or of an alert rule.
type Query struct {
	Board, Panel, Expr string
}

// dir() returns the root of the repository.
func dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Ours returns the queries of deploy/grafana/zlockd.json, including those of its variables.
func Ours() ([]Query, error) {
	b, err := os.ReadFile(filepath.Join(dir(), "deploy", "grafana", "zlockd.json"))
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		return nil, err
	}
	var list []Query
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			list = append(list, Query{"zlockd", p.Title, ""})
		}
		for _, t := range p.Targets {
			list = append(list, Query{"zlockd", p.Title, t.Expr})
		}
	}
	for _, v := range board.Templating.List {
		text, _ := v.Query.(string)
		if expr, ok := strings.CutPrefix(text, "label_values("); v.Type == "query" && ok {
			expr, _, _ = strings.Cut(expr, ", ")
			list = append(list, Query{"zlockd", "variable " + v.Name, expr})
		}
	}
	return list, nil
}

// Expand replaces a board's variables by values.
func Expand(expr string) string {
	return strings.NewReplacer("$job", "zlockd", "$instance", ".+", "$prefix", ".*", "$__rate_interval", "15s",
		"$__range", "15s").Replace(expr)
}

var (
	text     = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	matchers = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]`)
	labels   = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right) *\([^)]*\)`)
	numbers  = regexp.MustCompile(`\b[0-9][0-9a-z.]*`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*( *\()?`)
	keywords = []string{"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left",
		"group_right"}
)

// Names returns the metrics in an expression of Prometheus.
func Names(expr string) []string {
	for _, cut := range []*regexp.Regexp{text, matchers, labels, numbers} {
		expr = cut.ReplaceAllString(expr, " ")
	}
	var names []string
	for _, w := range word.FindAllString(expr, -1) {
		if !strings.HasSuffix(w, "(") && !slices.Contains(keywords, w) && !slices.Contains(names, w) {
			names = append(names, w)
		}
	}
	return names
}
