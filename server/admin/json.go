package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// jsonWriter writes JSON as ZooKeeper's AdminServer lays it out: keys in the
// order they are written, two blanks of indentation for each object, arrays on
// one line. Errors are those of the writer below, found when it is flushed.
type jsonWriter struct {
	w     *bufio.Writer
	depth int  // objects open
	empty bool // nothing written yet in the innermost object or array
}

func (j *jsonWriter) beginObject() {
	j.w.WriteByte('{')
	j.depth++
	j.empty = true
}

func (j *jsonWriter) endObject() {
	j.depth--
	if j.empty {
		j.w.WriteByte(' ')
	} else {
		j.line()
	}
	j.w.WriteByte('}')
	j.empty = false
}

func (j *jsonWriter) beginArray() {
	j.w.WriteString("[ ")
	j.empty = true
}

func (j *jsonWriter) endArray() {
	if !j.empty {
		j.w.WriteByte(' ')
	}
	j.w.WriteByte(']')
	j.empty = false
}

// list writes an array of n elements.
func (j *jsonWriter) list(n int, element func(i int)) {
	j.beginArray()
	for i := range n {
		j.elem()
		element(i)
	}
	j.endArray()
}

// objects writes a member that is an array: an object for each element that show wants.
func objects[T any](j *jsonWriter, k string, list []T, show func(*T) bool, body func(*T)) {
	j.key(k)
	j.beginArray()
	for i := range list {
		if show(&list[i]) {
			j.elem()
			j.beginObject()
			body(&list[i])
			j.endObject()
		}
	}
	j.endArray()
}

// elem begins an element of an array.
func (j *jsonWriter) elem() {
	if !j.empty {
		j.w.WriteString(", ")
	}
	j.empty = false
}

func (j *jsonWriter) line() {
	j.w.WriteByte('\n')
	for range j.depth {
		j.w.WriteString("  ")
	}
}

// key begins a member of an object.
func (j *jsonWriter) key(k string) {
	if !j.empty {
		j.w.WriteByte(',')
	}
	j.empty = false
	j.line()
	j.string(k)
	j.w.WriteString(" : ")
}

// field writes a member with a plain value.
func (j *jsonWriter) field(k string, v any) {
	j.key(k)
	j.value(v)
}

// fields writes members with plain values, given as keys and values in turn.
func (j *jsonWriter) fields(kv ...any) {
	for i := 0; i < len(kv); i += 2 {
		j.field(kv[i].(string), kv[i+1])
	}
}

// object writes a member that is an object.
func (j *jsonWriter) object(k string, body func()) {
	j.key(k)
	j.beginObject()
	body()
	j.endObject()
}

// value writes a plain value or a list of them. Numbers stay whole however
// large: session ids are numbers beyond 2^53 in this interface.
func (j *jsonWriter) value(v any) {
	switch v := v.(type) {
	case nil:
		j.w.WriteString("null")
	case string:
		j.string(v)
	case bool:
		j.w.WriteString(strconv.FormatBool(v))
	case int, uint32, int64, uint64, json.Number:
		fmt.Fprint(j.w, v)
	case float64:
		j.w.WriteString(decimal(v))
	case []string:
		j.list(len(v), func(i int) { j.string(v[i]) })
	case []int64:
		j.list(len(v), func(i int) { j.value(v[i]) })
	default:
		panic(fmt.Sprintf("admin: no JSON form for %T", v))
	}
}

// writeObject answers with a struct, in the layout of the other answers.
func writeObject(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data, which can be marshalled
	}
	j := &jsonWriter{w: bufio.NewWriter(w)}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	j.copy(d)
	_ = j.w.Flush()
}

// copy writes the next value of d, which reads what json.Marshal wrote.
func (j *jsonWriter) copy(d *json.Decoder) {
	switch t, _ := d.Token(); t {
	case json.Delim('{'):
		j.beginObject()
		for d.More() {
			key, _ := d.Token()
			j.key(key.(string))
			j.copy(d)
		}
		_, _ = d.Token()
		j.endObject()
	case json.Delim('['):
		j.beginArray()
		for d.More() {
			j.elem()
			j.copy(d)
		}
		_, _ = d.Token()
		j.endArray()
	default:
		j.value(t)
	}
}

func (j *jsonWriter) string(s string) {
	const special, letters = "\"\\\n\r\t\b\f", `"\nrtbf`
	w := j.w
	w.WriteByte('"')
	for _, r := range s { // a byte of a node's name that is not UTF-8 becomes U+FFFD
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
