package ask

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query is a request: the end of its URL's path, and its parameters.
type Query struct {
	Name   string
	Values url.Values
	All    bool     // whether the answer may contain names that not every client may list
	OfPage bool     // whether the parameters are those of the page, of which the query needs only some
	known  []string // names of the parameters that were read
	err    error    // the first error in the parameters
}

// Path returns the path of the node that the query names.
func (q *Query) Path() string { return "/" + strings.Trim(q.Name, "/") }

// Wrong returns what is wrong with the parameters. Call it after all parameters have been read: it refuses
// those that were not, because with a misspelt filter the answer would show everything.
func (q *Query) Wrong() error {
	for name := range q.Values {
		if !q.OfPage && !slices.Contains(q.known, name) {
			return BadRequest("unknown parameter %q; known are %s", name, strings.Join(q.known, ", "))
		}
	}
	return q.err
}

// Text returns a parameter.
func (q *Query) Text(name string) string {
	q.known = append(q.known, name)
	return q.Values.Get(name)
}

// Refuse records what is wrong with the parameters, unless an earlier error is already recorded.
func (q *Query) Refuse(format string, args ...any) {
	if q.err == nil {
		q.err = BadRequest(format, args...)
	}
}

// Number reads a whole number from `least` to `most`. It returns `def` if the request has no value for it.
func (q *Query) Number(name string, def, least, most int) int {
	s := q.Text(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.Refuse("%s=%s: want a number from %d to %d", name, s, least, most)
		return def
	}
	return n
}

// Age reads a length of time.
func (q *Query) Age(name string) time.Duration {
	s := q.Text(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		q.Refuse("%s=%s: want a time such as 30s or 5m", name, s)
	}
	return d
}

// Flag reads a yes or no.
func (q *Query) Flag(name string) bool {
	switch s := q.Text(name); {
	case !q.Values.Has(name), s == "false", s == "0":
		return false
	case s == "", s == "true", s == "1":
		return true
	default:
		q.Refuse("%s=%s: want true or false", name, s)
		return false
	}
}

// Prefix reads the parameter `prefix`: the answer shows only what is at or below this path.
func (q *Query) Prefix() string {
	p := q.Text("prefix")
	if p != "" && p[0] != '/' {
		q.Refuse("prefix=%s: want a path that begins with a slash, such as /app", p)
	}
	return p
}

// Page is a part of a list.
type Page struct {
	Total  int  `json:"total"` // the number of all rows that match
	Offset int  `json:"offset"`
	Next   *int `json:"next,omitempty"` // offset of the next part
}

// MaxPage is the limit of entries in a part.
const MaxPage = 1000

// Part returns which part of a list the query asks for.
func (q *Query) Part() (offset, limit int) {
	return q.Number("offset", 0, 0, 1<<30), q.Number("limit", 100, 1, MaxPage)
}

// Cut returns a part of a list.
func Cut[T any](list []T, offset, limit int) (Page, []T) {
	from := min(offset, len(list))
	to := min(from+limit, len(list))
	p := Page{Total: len(list), Offset: from}
	if to < len(list) {
		p.Next = &to
	}
	return p, list[from:to]
}

// ParseSession reads an id, in hex or decimal.
func ParseSession(s string) (int64, bool) {
	if h, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		n, err := strconv.ParseUint(h, 16, 64)
		return int64(n), err == nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
