package recipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Each byte of an id with dashes is looked at.
func TestIDsWithDashes(t *testing.T) {
	id := NewID(0x123456789abcdef, 42)
	text := id.UUID()
	got, ok := ParseUUID(text)
	if expect.That(t, ok, "%s is read as %v: want ok", text, got) {
		expect.Equal(t, got, id, "%s is read as %v: got", text, got)
	}
	for i := range text {
		_, ok := ParseUUID(text[:i] + "g" + text[i+1:])
		expect.That(t, !ok, "%s is an id with a g at %d", text, i)
		_, ok = ParseUUID(text[:i] + text[i+1:])
		expect.That(t, !ok, "%s is an id without the byte at %d", text, i)
		made := MakerOf("_c_" + text[:i] + "g" + text[i+1:] + "-")
		marks := slices.Contains([]int{8, 13, 14, 18, 19, 23}, i)
		expect.That(t, marks == (made != MakerSelf), "%s with a g at %d is made by %v", text, i, made)
	}
}

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
