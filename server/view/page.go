package view

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
)

//go:embed page.html
var pageText string

// tab is a part of the page: it shows the answer to one query. If the answer is about a single node or
// session, `of` is the name of the parameter that says which.
type tab struct {
	ID, Name string
	answer   func(*View, context.Context, *ask.Query) (any, error)
	of       string
	Current  bool
}

var tabs = []tab{
	{ID: "overview", Name: "Overview", answer: (*View).now},
	{ID: "locks", Name: "Locks", answer: (*View).listLocks},
	{ID: "lock", Name: "One lock", answer: (*View).oneLock, of: "path"},
	{ID: "graph", Name: "Wait-for graph", answer: (*View).waitGraph},
	{ID: "sessions", Name: "Sessions", answer: (*View).listSessions},
	{ID: "ended", Name: "Ended sessions", answer: (*View).listEnded},
	{ID: "clients", Name: "Busy clients", answer: (*View).top},
	{ID: "tree", Name: "Tree", answer: (*View).oneNode, of: "path"},
}

// oneSession is shown in place of a tab when the user follows a link in a list of sessions.
var oneSession = tab{ID: "session", Name: "Sessions", answer: (*View).oneSession, of: "id"}

// pageData is what the template of the page gets: the overview and, unless it is nil, the answer of the tab.
type pageData struct {
	r       *http.Request
	all     bool // whether the view shows all names
	Tab     string
	Title   string
	Token   string
	Tabs    []tab
	Problem string
	Kinds   []recipe.Kind
	Sorts   []string
	O       overviewAnswer
	A       any
}

// Query returns a parameter of the page.
func (d *pageData) Query(name string) string { return ask.Clip(d.r.URL.Query().Get(name)) }

// NextPage returns the link to the part of a list that begins at an offset.
func (d *pageData) NextPage(offset int) string {
	q := d.r.URL.Query()
	q.Set("offset", strconv.Itoa(offset))
	return "/?" + q.Encode()
}

// ask() calls f with the parameters of the page, and returns the answer, or shows the error. It drops
// parameters that are empty: they come from form fields that the user left empty.
func (d *pageData) ask(ctx context.Context, f ask.Answerer, name string) any {
	values := d.r.URL.Query()
	maps.DeleteFunc(values, func(_ string, v []string) bool { return v[0] == "" })
	a, err := f(ctx, &ask.Query{Name: name, Values: values, All: d.all, OfPage: true})
	if err == nil {
		return a
	}
	var p *port.Refusal
	if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || d.Problem == "" {
		d.Problem = err.Error()
	}
	return nil
}

// servePage serves the page: plain tables, which a browser shows without any script. A script keeps them up
// to date: it requests the page again and again, and replaces the tables.
func (v *View) servePage(w http.ResponseWriter, r *http.Request) {
	v.desk.InTurn(w, r, "the page", func(ctx context.Context, w http.ResponseWriter) { v.writePage(ctx, w, r) })
}

func (v *View) writePage(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	all, no := v.desk.Sees(r)
	if no != nil {
		v.desk.Fail(w, no)
		return
	}
	d := &pageData{r: r, all: all, Token: v.actor.Token(), Kinds: recipe.Kinds,
		Sorts: []string{"path", "waiters", "wait", "hold"}}
	asked := r.URL.Query()
	shown := tabs[0]
	for _, t := range append(tabs[:len(tabs):len(tabs)], oneSession) {
		if t.ID == asked.Get("tab") {
			shown = t
		}
	}
	d.Tab, d.Title = shown.ID, shown.Name
	for _, t := range tabs {
		t.Current = t.Name == shown.Name
		d.Tabs = append(d.Tabs, t)
	}
	d.O, _ = d.ask(ctx, v.overview, "").(overviewAnswer)
	if name := asked.Get(shown.of); shown.ID != "lock" || name != "" {
		d.A = d.ask(ctx, func(ctx context.Context, q *ask.Query) (any, error) {
			return shown.answer(v, ctx, q)
		}, name)
	}
	var b bytes.Buffer
	if err := rendered().Execute(&b, d); err != nil {
		v.desk.Fail(w, err)
		return
	}
	h := w.Header()
	policy := policies()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	v.desk.SendBytes(w, r, "text/html; charset=utf-8", b.Bytes())
}

// rendered() returns the template of the page. The page has points in time, which the script turns into ages.
// So the page is the same, byte for byte, as long as nothing changes.
var rendered = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(pageFuncs()).Parse(pageText))
})

// rowOf is what the template needs to show a contender and its buttons.
type rowOf struct {
	Path string
	Act  bool
	Ask  bool // whether its program can be asked to give the lock back
	C    contenderRow
}

func pageFuncs() template.FuncMap {
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC") }
	return template.FuncMap{
		"time": func(ms int64) string {
			if ms == 0 {
				return ""
			}
			return at(ms)
		},
		"mib": func(bytes int64) string { return ask.Thousands(int(bytes >> 20)) },
		"age": func(ms int64) template.HTML {
			if ms == 0 {
				return ""
			}
			return template.HTML(`<time data-age="` + strconv.FormatInt(ms, 10) + `" title="since ` + at(ms) +
				`">since ` + at(ms) + `</time>`)
		},
		"show":   answer.Visible,
		"holder": func(c contenderRow) string { return answer.Visible(holderOf(c)) },
		"party":  func(p partyRow) string { return answer.Visible(strings.TrimSpace(p.Label + " " + p.Reason)) },
		"row": func(d *pageData, path string, c contenderRow) rowOf {
			return rowOf{path, d.O.CanAct, c.Askable(), c}
		},
		"picture": draw,
		"more":    func(shown, all int) int { return all - shown },
		"cut":     func(n int, s string) string { return middle(answer.Visible(s), n) },
		"busiest": func(rows []answer.Busy) []answer.Busy { return rows[:min(len(rows), 10)] },
		"ups":     ups,
		"child":   func(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name },
	}
}

// crumb is the node that the page shows, or a node above it.
type crumb struct{ Name, Path string }

// ups() returns the nodes from the root down to a path.
func ups(path string) []crumb {
	list := []crumb{{"/", "/"}}
	for at, c := range path {
		if c == '/' && at > 0 {
			list = append(list, crumb{path[strings.LastIndexByte(path[:at], '/')+1 : at], path[:at]})
		}
	}
	if path != "/" {
		list = append(list, crumb{path[strings.LastIndexByte(path, '/')+1:], path})
	}
	return list
}

// holderOf returns a contender's name for people.
func holderOf(c contenderRow) string {
	o := c.Owner
	switch {
	case o != nil && o.Host != "" && o.PID != 0:
		return ask.Clip(o.Host) + "[" + strconv.Itoa(o.PID) + "]"
	case o != nil && o.Host != "":
		return ask.Clip(o.Host)
	case c.Data != "" && c.Data != recipe.CuratorRevoke && len(c.Data) < 80:
		value, _ := recipe.ValueOf([]byte(c.Data))
		return string(value)
	case c.Addr != "":
		return c.Addr + " " + c.Session.String()
	}
	return c.Session.String()
}

// policies() returns the content security policy of the page. It allows only the page's own script and style,
// and requests to the server that sent the page.
var policies = sync.OnceValue(func() string {
	var b bytes.Buffer
	if err := rendered().Execute(&b, &pageData{r: &http.Request{URL: &url.URL{}}}); err != nil {
		panic(err) // a defect: the template is compiled into this program
	}
	hash := func(tag string) string {
		m := regexp.MustCompile(`(?s)<` + tag + `>(.*?)</` + tag + `>`).FindSubmatch(b.Bytes())
		sum := sha256.Sum256(m[1])
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash("script") + "; style-src " + hash("style") +
		"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
})
