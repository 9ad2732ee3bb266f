package recipe

import (
	"strings"
	"testing"
)

func TestIDsAreLowerCase(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for s, want := range map[string]bool{
		id: true, strings.ToUpper(id): false, id[1:]: false, id + "0": false, id[1:] + "g": false, id[1:] +
			"`": false, id[1:] + ":": false, id[1:] + "/": false,
	} {
		if _, ok := ParseHex(s); ok != want {
			t.Errorf("%s is an id: %v", s, ok)
		}
		if got := isSession("0x" + s[:16]); got != (strings.ToLower(s) == s) {
			t.Errorf("0x%s is a session: %v", s[:16], got)
		}
	}
}

func TestOwnerIsAShortRecord(t *testing.T) {
	record := func(size int) string {
		const begin, end = `{"v":1,"host":"h","reason":"`, `"}`
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"nothing":  {"", false},
		"text":     {"host 1", false},
		"a list":   {"[1]", false},
		"indented": {" " + record(100), false},
		"version":  {`{"v":2}`, false},
		"short":    {record(100), true},
		"longest":  {record(2 * MaxOwnerData), true},
		"longer":   {record(2*MaxOwnerData + 1), false},
	} {
		if o, ok := (&Entry{raw: c.data}).Record(); ok != c.want || ok && o.Host != "h" {
			t.Errorf("%s: %v, %+v", name, ok, o)
		}
	}
}
