package recipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Each byte of an id with dashes is checked.
func TestIDsWithDashes(t *testing.T) {
	id := NewID(0x123456789abcdef, 42)
	text := id.UUID()
	got, ok := ParseUUID(text)
	expect.That(t, ok, "%s is no id", text)
	expect.Equal(t, got, id, "the id in %s", text)
	for i := range text {
		_, ok := ParseUUID(text[:i] + "g" + text[i+1:])
		expect.That(t, !ok, "%s is an id with a g at %d", text, i)
		_, ok = ParseUUID(text[:i] + text[i+1:])
		expect.That(t, !ok, "%s is an id without the byte at %d", text, i)
		made := MakerOf("_c_" + text[:i] + "g" + text[i+1:] + "-")
		marks := slices.Contains([]int{8, 13, 14, 18, 19, 23}, i)
		expect.Equal(t, made != MakerSelf, marks, "a g at %d of %s hides the maker", i, text)
	}
}

func TestIDsAreLowerCase(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for s, want := range map[string]bool{
		id: true, strings.ToUpper(id): false, id[1:]: false, id + "0": false, id[1:] + "g": false, id[1:] +
			"`": false, id[1:] + ":": false, id[1:] + "/": false,
	} {
		_, ok := ParseHex(s)
		expect.Equal(t, ok, want, "%s is an id", s)
		expect.Equal(t, isSession("0x"+s[:16]), strings.ToLower(s) == s, "0x%s is a session", s[:16])
	}
}
