package answer

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible returns text of clients in a form for people, in which different names look different. It replaces
// characters that do not print, change the direction of writing, or take no space by their codes. It replaces
// a space at an end of the text, or next to another space, by ␣.
func Visible(s string) string {
	if s == strings.ToValidUTF8(s, "") && !strings.ContainsFunc(s, hidden) && !strings.Contains(s, "  ") &&
		!strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") {
		return s // the text is nearly always plain
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
			b.WriteRune(r) // the replacement character stands for bytes that are not UTF-8
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
