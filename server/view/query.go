package view

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// query is a request: the end of its URL's path, and its parameters.
type query struct {
	name   string
	values url.Values
	all    bool     // names that not every client may list are shown, too
	ofPage bool     // the parameters are those of the page, which has further ones
	known  []string // the parameters that were read
	err    error    // the first thing that is wrong with them
}

// path returns the path of the node that the query names.
func (q *query) path() string { return "/" + strings.Trim(q.name, "/") }

// wrong returns what is wrong with the parameters. It is called after all known parameters were read. It
// refuses unknown parameters, because a filter with a misspelt name would show everything.
func (q *query) wrong() error {
	for name := range q.values {
		if !q.ofPage && !slices.Contains(q.known, name) {
			return badRequest("unknown parameter %q; known are %s", name, strings.Join(q.known, ", "))
		}
	}
	return q.err
}

func (q *query) text(name string) string {
	q.known = append(q.known, name)
	return q.values.Get(name)
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(format, args...)
	}
}

// number reads a whole number, or returns def.
func (q *query) number(name string, def, least, most int) int {
	s := q.text(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.refuse("%s=%s: want a number from %d to %d", name, s, least, most)
		return def
	}
	return n
}

func (q *query) age(name string) time.Duration {
	s := q.text(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		q.refuse("%s=%s: want a time such as 30s or 5m", name, s)
	}
	return d
}

func (q *query) flag(name string) bool {
	switch s := q.text(name); {
	case !q.values.Has(name), s == "false", s == "0":
		return false
	case s == "", s == "true", s == "1":
		return true
	default:
		q.refuse("%s=%s: want true or false", name, s)
		return false
	}
}

// prefix reads the path that answers must be at or below.
func (q *query) prefix() string {
	p := q.text("prefix")
	if p != "" && p[0] != '/' {
		q.refuse("prefix=%s: want a path that begins with a slash, such as /app", p)
	}
	return p
}

// page is a part of a list.
type page struct {
	Total  int  `json:"total"` // the number of all rows that match
	Offset int  `json:"offset"`
	Next   *int `json:"next,omitempty"` // offset of the next part
}

// maxPage is how many entries a part has at most.
const maxPage = 1000

// part returns which part of a list the query asks for.
func (q *query) part() (offset, limit int) {
	return q.number("offset", 0, 0, 1<<30), q.number("limit", 100, 1, maxPage)
}

// cut returns a part of a list.
func cut[T any](list []T, offset, limit int) (page, []T) {
	from := min(offset, len(list))
	to := min(from+limit, len(list))
	p := page{Total: len(list), Offset: from}
	if to < len(list) {
		p.Next = &to
	}
	return p, list[from:to]
}

// parseSession reads an id, in hex or decimal.
func parseSession(s string) (int64, bool) {
	if h, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		n, err := strconv.ParseUint(h, 16, 64)
		return int64(n), err == nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
