package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
)

// report collects results and prints them as Markdown.
type report struct {
	c        *config
	sides    []*side
	head     string
	settings string
	rows     []string
	notes    []string
	failures []string
}

func newReport(c *config, sides []*side) *report {
	r := &report{c: c, sides: sides}
	level := "without a long warm-up"
	if c.level > 0 {
		level = fmt.Sprintf("each side warm: %v and %s operations of the point at least, until its rate is level",
			c.level, number(levelOps))
	}
	r.head = fmt.Sprintf("%s, %s. %d rounds of %v after %v, sides in turn, %s; %d server(s) on each side "+
		"and %d observer(s).", time.Now().UTC().Format("2006-01-02 15:04 MST"), measure.Machine(), c.rounds, c.duration,
		c.warm, level, c.nodes, c.observers)
	return r
}

// add() makes the rows of a point, one per metric.
func (r *report) add(p point, out outcome, err error) {
	rounds := out.rounds
	r.notes = append(r.notes, out.notes...)
	if r.settings == "" && !p.alone && err == nil {
		for _, s := range r.sides {
			if s.floor == nil {
				r.settings += s.settings()
			}
		}
	}
	if err != nil {
		r.failures = append(r.failures, fmt.Sprintf("* `%s`: %s", p.name, strings.ReplaceAll(err.Error(), "\n",
			" ")))
	}
	shape := firstSample(rounds)
	if shape == nil {
		return
	}
	for i, m := range shape.metrics {
		cells := []string{r.label(p, m), m.unit}
		values := make([][]float64, len(r.sides))
		var ratios []float64
		for _, row := range rounds {
			for k, s := range row {
				if s != nil && i < len(s.metrics) { // the floor has no metric of a leader
					values[k] = append(values[k], s.metrics[i].value)
				}
			}
			if len(row) > 1 && r.sides[1].floor == nil && row[0] != nil && row[1] != nil {
				ratios = append(ratios, ratio(row[0].metrics[i].value, row[1].metrics[i].value, m.lower))
			}
		}
		for k := range r.sides {
			cells = append(cells, number(measure.Median(values[k])))
		}
		cells = append(cells, rangeOf(ratios), r.verdict(p, i, measure.Median(ratios), len(ratios)))
		if i == 0 {
			for k := range r.sides {
				cells = append(cells, out.latency(k), cpu(rounds, k))
			}
		} else {
			for range r.sides {
				cells = append(cells, "", "")
			}
		}
		r.rows = append(r.rows, "| "+strings.Join(cells, " | ")+" |")
	}
	for k, s := range r.sides {
		for _, row := range rounds {
			if k < len(row) && row[k] != nil && row[k].note != "" {
				r.notes = append(r.notes, fmt.Sprintf("* `%s`, %s: %s", p.name, s.name, row[k].note))
			}
		}
	}
}

func firstSample(rounds [][]*sample) *sample {
	for _, row := range rounds {
		for _, s := range row {
			if s != nil {
				return s
			}
		}
	}
	return nil
}

func (r *report) label(p point, m metric) string {
	if m.name == "" {
		return "`" + p.name + "`"
	}
	return "`" + p.name + "` " + m.name
}

// ratio() returns how many times better a is than b.
func ratio(a, b float64, lower bool) float64 {
	if lower {
		a, b = b, a
	}
	if b == 0 {
		if a == 0 {
			return 1
		}
		return math.Inf(1)
	}
	return a / b
}

func (r *report) verdict(p point, metric int, got float64, n int) string {
	goal := p.goal(r.c.nodes)
	if goal == 0 || metric > 0 || n == 0 {
		return ""
	}
	if got >= goal {
		return fmt.Sprintf("%.1f ✓", goal)
	}
	return fmt.Sprintf("%.1f **missed**", goal)
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", r.head)
	if r.settings != "" {
		fmt.Fprintf(w, "Settings (fsync before every answer on both sides):\n\n%s\n", r.settings)
	}
	head := []string{"point", "unit"}
	for _, s := range r.sides {
		head = append(head, s.name)
	}
	head = append(head, "times better, median (range)", "goal")
	for _, s := range r.sides {
		head = append(head, s.name+" p50 / p99 / p99.9 ms", s.name+" CPU µs/op, servers + client")
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range r.rows {
		fmt.Fprintln(w, row)
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Notes", r.notes}, {"Failed", r.failures}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(w, "\n%s:\n\n%s\n", part.title, strings.Join(part.lines, "\n"))
		}
	}
	fmt.Fprintf(w, "\nWhat the points are:\n\n")
	list := points(r.c)
	for i := 0; i < len(list); {
		var names []string
		help := list[i].help
		for ; i < len(list) && list[i].help == help; i++ {
			names = append(names, "`"+list[i].name+"`")
		}
		fmt.Fprintf(w, "* %s: %s\n", strings.Join(names, ", "), help)
	}
}

func rangeOf(ratios []float64) string {
	if len(ratios) == 0 {
		return "–"
	}
	if len(ratios) == 1 {
		return fmt.Sprintf("**%.2f**", ratios[0])
	}
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", measure.Median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// number() prints three significant digits with thousands separated.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case math.Abs(v) >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// of() returns the median of f over the samples of side k.
func of(rounds [][]*sample, k int, f func(*sample) float64) float64 {
	var list []float64
	for _, row := range rounds {
		if row[k] != nil {
			list = append(list, f(row[k]))
		}
	}
	return measure.Median(list)
}

// latency() returns the quantiles of the latency of side k. They come from the rounds at one rate for all
// sides, if the point has such rounds. In the other rounds a side is as busy as it can be, and an operation
// mostly waits for those before it.
func (o outcome) latency(k int) string {
	rounds, rate := o.rounds, ""
	if len(o.equal) > 0 {
		rounds, rate = o.equal, " at "+number(o.rate)+"/s"
	}
	var cells [len(tails{})]string
	for i := range cells {
		v := of(rounds, k, func(s *sample) float64 { return ms(s.tails[i]) })
		if !(v > 0) {
			return ""
		}
		cells[i] = number(v)
	}
	return strings.Join(cells[:], " / ") + rate
}

func cpu(rounds [][]*sample, k int) string {
	server := of(rounds, k, func(s *sample) float64 { return s.server })
	client := of(rounds, k, func(s *sample) float64 { return s.client })
	if !(client > 0) {
		return ""
	}
	if !(server > 0) {
		return "? + " + number(client)
	}
	return number(server) + " + " + number(client)
}
