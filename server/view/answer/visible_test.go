package answer

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a path", "/app/orders lock-0000000001", "/app/orders lock-0000000001"},
		{"other letters", "/größe/日本語/😀", "/größe/日本語/😀"},
		{"empty", "", ""},
		{"one space alone", " ", "␣"},
		{"spaces at the ends", " a ", "␣a␣"},
		{"doubled spaces", "a  b c", "a␣␣b c"},
		{"turned direction", "/pay\u202etset", "/pay⟨U+202E⟩tset"},
		{"isolated direction", "a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"},
		{"Arabic mark", "a\u061cb", "a⟨U+061C⟩b"},
		{"no width", "a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"},
		{"other spaces", "a\u00a0b\u3000", "a⟨U+00A0⟩b⟨U+3000⟩"},
		{"blank letters", "a\u3164\u2800\ufe0f", "a⟨U+3164⟩⟨U+2800⟩⟨U+FE0F⟩"},
		{"control characters", "a\n\x1b[2J\x7f", "a⟨U+000A⟩⟨U+001B⟩[2J⟨U+007F⟩"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
	} {
		t.Run(c.name, func(t *testing.T) { expect.Equal(t, Visible(c.text), c.want) })
	}
}
