package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/server/report"
)

// object is a JSON object. Its members keep their order.
type object []member

// member is a member of an object. Its value is a string, a bool, a number, nil, an object, or a list of
// these. A long list may also be an iterator, so that each element exists only while it is written.
type member struct {
	key   string
	value any
}

// writeJSON writes a value in the layout of ZooKeeper's AdminServer: two blanks of indentation for each
// object, and arrays on one line.
func writeJSON(to io.Writer, v any) error {
	j := &jsonWriter{w: bufio.NewWriterSize(to, 32<<10)}
	j.value(v)
	return j.w.Flush()
}

// jsonWriter writes JSON. If a write fails, Flush returns the error.
type jsonWriter struct {
	w     *bufio.Writer
	depth int // the number of objects that are open
}

// value writes a value. It writes numbers with all their digits: session ids are larger than 2^53, and
// floating point cannot hold all whole numbers above that.
func (j *jsonWriter) value(v any) {
	switch v := v.(type) {
	case nil:
		j.w.WriteString("null")
	case string:
		j.string(v)
	case bool, int, uint32, int64, uint64, json.Number:
		fmt.Fprint(j.w, v)
	case float64:
		j.w.WriteString(report.Decimal(v))
	case object:
		j.object(v)
	case []string:
		list(j, slices.Values(v))
	case []int64:
		list(j, slices.Values(v))
	case []any:
		list(j, slices.Values(v))
	case iter.Seq[object]:
		list(j, v)
	default:
		panic(fmt.Sprintf("admin: no JSON form for %T", v))
	}
}

func (j *jsonWriter) object(o object) {
	if len(o) == 0 {
		j.w.WriteString("{ }")
		return
	}
	j.depth++
	for i, m := range o {
		j.w.WriteByte("{,"[min(i, 1)])
		j.line()
		j.string(m.key)
		j.w.WriteString(" : ")
		j.value(m.value)
	}
	j.depth--
	j.line()
	j.w.WriteByte('}')
}

func list[T any](j *jsonWriter, all iter.Seq[T]) {
	before := "[ "
	for v := range all {
		j.w.WriteString(before)
		j.value(v)
		before = ", "
	}
	if before == "[ " {
		j.w.WriteByte('[')
	}
	j.w.WriteString(" ]")
}

func (j *jsonWriter) line() {
	j.w.WriteByte('\n')
	for range j.depth {
		j.w.WriteString("  ")
	}
}

// answerJSON sends v as JSON. It ignores errors: then the client is gone and needs no answer.
func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = writeJSON(w, v)
}

// answerStruct answers with a struct as JSON, in the layout of ZooKeeper's AdminServer.
func answerStruct(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a defect: v has only fields that JSON can hold
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	answerJSON(w, code, ordered(d))
}

// ordered reads the next value of d, and keeps the order of members in objects. It ignores errors, because
// its input comes from json.Marshal.
func ordered(d *json.Decoder) any {
	t, _ := d.Token()
	switch t {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, _ := d.Token()
			o = append(o, member{key.(string), ordered(d)})
		}
		_, _ = d.Token()
		return o
	case json.Delim('['):
		list := []any{}
		for d.More() {
			list = append(list, ordered(d))
		}
		_, _ = d.Token()
		return list
	}
	return t
}

func (j *jsonWriter) string(s string) {
	const special, letters = "\"\\\n\r\t\b\f", `"\nrtbf`
	w := j.w
	w.WriteByte('"')
	for _, r := range s { // bytes that are not UTF-8 arrive as U+FFFD
		if i := strings.IndexRune(special, r); i >= 0 {
			w.WriteByte('\\')
			w.WriteByte(letters[i])
		} else if r < ' ' {
			fmt.Fprintf(w, `\u%04X`, r)
		} else {
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}
