package settings

import (
	"cmp"
	"strconv"
	"strings"
)

// property is one key of a Java properties file.
type property struct {
	key, value string
	line       int
}

// lineEnds changes all line ends to LF. Java's Properties also knows CR LF and CR.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// parseProperties reads the syntax of Java's Properties. A comment begins with # or !. A key ends at a blank,
// an equals sign or a colon. A backslash at the end of a line joins it with the next; elsewhere it begins an
// escape. If a key occurs twice, the last value counts, at the place of the first.
func parseProperties(text string) []property {
	var list []property
	at := make(map[string]int)
	lines := strings.Split(lineEnds.Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		first := i + 1
		line, last := joined(lines, i)
		i = last
		if line == "" || isComment(line) {
			continue
		}
		key, value := splitProperty(line)
		// Like ZooKeeper, remove blanks and control characters at both ends of a value. Properties alone keeps
		// them.
		value = strings.TrimFunc(unescape(value), func(r rune) bool { return r <= ' ' })
		p := property{unescape(key), value, first}
		if j, twice := at[p.key]; twice {
			list[j] = p
			continue
		}
		at[p.key] = len(list)
		list = append(list, p)
	}
	return list
}

// joined() joins the line at i with those that continue it, and returns the index of the last of these. A
// comment never continues. The lines may still have their line ends.
func joined(lines []string, i int) (line string, last int) {
	text := func(i int) string { return strings.TrimLeft(strings.TrimSuffix(lines[i], "\n"), " \t\f") }
	line = text(i)
	for !isComment(line) && continued(line) && i+1 < len(lines) {
		i++
		line = line[:len(line)-1] + text(i)
	}
	return line, i
}

func isComment(line string) bool { return line != "" && (line[0] == '#' || line[0] == '!') }

// continued() reports whether a line ends in an odd number of backslashes.
func continued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty cuts at the first separator that is not escaped.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return line[:end], value
}

var escapes = map[byte]byte{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f'}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) { // nothing follows the backslash: the text ends here
			break
		}
		if s[i] == 'u' && i+4 < len(s) {
			if r, err := strconv.ParseUint(s[i+1:i+5], 16, 16); err == nil {
				b.WriteRune(rune(r))
				i += 4
				continue
			}
		}
		b.WriteByte(cmp.Or(escapes[s[i]], s[i]))
	}
	return b.String()
}
