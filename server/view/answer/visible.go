package answer

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible returns text that clients chose in a form for people, in which different texts look different. It
// writes the code of a character that does not print, takes no space, or changes the direction of writing. It
// writes ␣ for a space at an end of the text or next to another space.
func Visible(s string) string {
	if s == strings.ToValidUTF8(s, "") && !strings.ContainsFunc(s, hidden) && !strings.Contains(s, "  ") &&
		!strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") {
		return s // nearly always: there is nothing to replace
	}
	var b strings.Builder
	before := ' '
	for at, r := range s {
		switch {
		case r == ' ' && (before == ' ' || at == len(s)-1 || s[at+1] == ' '):
			b.WriteRune('␣')
		case hidden(r):
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		default:
			b.WriteRune(r) // bytes that are not UTF-8 arrive here as U+FFFD
		}
		before = r
	}
	return b.String()
}

// hidden() reports whether a character cannot be seen or moves other characters.
func hidden(r rune) bool {
	return r != ' ' && !unicode.IsPrint(r) || r == '\u2800' ||
		r > unicode.MaxLatin1 && unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Variation_Selector)
}
