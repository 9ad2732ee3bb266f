package sasl

import (
	"errors"
	"fmt"
	"strings"
)

// maxToken is how many bytes RFC 2831 allows for a token of a client.
const maxToken = 4096

// Why an exchange has failed. The reasons go to the log; the client learns only that it has failed.
var (
	errProtocol = errors.New("the client's answer does not follow DIGEST-MD5")
	errRefused  = errors.New("unknown user or wrong password")
)

// maxDirectives bounds the directives in a token. RFC 2831 has only twelve.
const maxDirectives = 32

// parseDirectives reads `name=value, name="quoted value", …`. It refuses a token that has a name twice: which
// of the values counts would be unclear.
func parseDirectives(token []byte) (map[string]string, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("%w: %d bytes", errProtocol, len(token))
	}
	d := map[string]string{}
	rest := string(token)
	for {
		rest = strings.TrimLeft(rest, " \t\r\n,")
		if rest == "" {
			return d, nil
		}
		name, after, ok := strings.Cut(rest, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || name == "" || strings.ContainsAny(name, "\",") {
			return nil, fmt.Errorf("%w: a directive without a value", errProtocol)
		}
		value, next, err := cutValue(strings.TrimLeft(after, " \t\r\n"))
		if err != nil {
			return nil, err
		}
		if _, twice := d[name]; twice || len(d) == maxDirectives {
			return nil, fmt.Errorf("%w: directive %.32q too often", errProtocol, name)
		}
		d[name], rest = value, next
	}
}

// cutValue cuts a value, quoted or not, and the comma after it off the beginning of s.
func cutValue(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ",")
		return strings.TrimSpace(value), rest, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", "", fmt.Errorf("%w: it ends inside a quoted value", errProtocol)
			}
			b.WriteByte(s[i])
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t\r\n")
			if rest != "" && rest[0] != ',' {
				return "", "", fmt.Errorf("%w: text follows a quoted value", errProtocol)
			}
			return b.String(), strings.TrimPrefix(rest, ","), nil
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", fmt.Errorf("%w: it ends inside a quoted value", errProtocol)
}
