package admin

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

func TestStringsStayJSON(t *testing.T) {
	for _, s := range []string{"", "/a/b", `"\`, "\n\r\t\b\f", "\x00\x1f\x7f", "é€😀", "\xff\xfe", "</script>"} {
		var b strings.Builder
		w := bufio.NewWriter(&b)
		(&jsonWriter{w: w}).string(s)
		w.Flush()
		var back string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
			t.Errorf("%q gives %s: %v", s, b.String(), err)
		} else if want := strings.ToValidUTF8(s, "\uFFFD"); back != want && strings.ToValidUTF8(s, "") == s {
			t.Errorf("%q comes back as %q", s, back)
		}
	}
}

func TestEmptyContainers(t *testing.T) {
	var b strings.Builder
	w := bufio.NewWriter(&b)
	j := &jsonWriter{w: w}
	j.beginObject()
	j.field("a", []int64(nil))
	j.object("b", func() {})
	j.key("c")
	j.beginArray()
	for range 2 {
		j.elem()
		j.beginObject()
		j.field("d", 1)
		j.endObject()
	}
	j.endArray()
	j.endObject()
	w.Flush()
	const want = "{\n  \"a\" : [ ],\n  \"b\" : { },\n  \"c\" : [ {\n    \"d\" : 1\n  }, {\n    \"d\" : 1\n  " +
		"} ]\n}"
	expect.Equal(t, b.String(), want)
}

func TestNumbersAreJavas(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 1.8177: "1.8177", 9333.66666: "9333.6667", 5: "5.0",
		-0.00001: "0.0", 1e21: "1000000000000000000000.0"} {
		if got := decimal(f); got != want {
			t.Errorf("%v prints as %s, not %s", f, got, want)
		}
	}
}

func TestAddressesAreJavas(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1":          "/127.0.0.1:1",
		"[::1]:80":             "/[0:0:0:0:0:0:0:1]:80",
		"[fe80::a:b%eth0]:80":  "/[fe80:0:0:0:0:0:a:b%eth0]:80",
		"[::ffff:10.0.0.1]:80": "/10.0.0.1:80",
		"pipe":                 "/pipe",
	} {
		expect.Equal(t, javaAddr(addr), want, "%s prints as", addr)
	}
}
