package kerberos

import (
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Names turn a principal into an identity, as ZooKeeper does: the result of the rules, followed by the host,
// unless RemoveHost is set, and by the realm, unless RemoveRealm is set.
type Names struct {
	// Rules are tried in order, and the first that matches is used. If there are no rules, DEFAULT is used.
	Rules []Rule
	// RemoveHost and RemoveRealm are the settings kerberos.removeHostFromPrincipal and
	// kerberos.removeRealmFromPrincipal.
	RemoveHost, RemoveRealm bool

	realm string // the server's own realm, for the rule DEFAULT
}

// Rule is one rule of auth_to_local: DEFAULT, or
// RULE:[parts:format](match)s/from/to/g.
type Rule struct {
	isDefault   bool
	parts       int
	format      []piece
	match, from *regexp.Regexp
	to          string
	all         bool
}

// piece is a piece of a format: a text, and then the part of the name with the number `part`. Part 0 is the
// realm; -1 means that no part follows the text.
type piece struct {
	text string
	part int
}

// ruleForm matches one rule at the beginning of the text.
var ruleForm = regexp.MustCompile(
	`^\s*(?:(DEFAULT)|RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?)`)

var formatPiece = regexp.MustCompile(`([^$]*)(?:\$(\d+))?`)

// ParseRules reads rules in the format of security.auth_to_local.
func ParseRules(text string) ([]Rule, error) {
	var rules []Rule
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		m := ruleForm.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%.64q is not a rule: want DEFAULT, or RULE:[parts:format](match)s/from/to/g", rest)
		}
		rest = rest[len(m[0]):]
		r, err := parseRule(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(m[0]), err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(m []string) (r Rule, err error) {
	if m[1] != "" {
		return Rule{isDefault: true}, nil
	}
	if r.parts, err = strconv.Atoi(m[2]); err != nil || r.parts < 1 || r.parts > 2 {
		return r, errors.New("a name has 1 or 2 parts")
	}
	for _, p := range formatPiece.FindAllStringSubmatch(m[3], -1) {
		part := -1
		if p[2] != "" {
			if part, err = strconv.Atoi(p[2]); err != nil || part > r.parts {
				return r, fmt.Errorf("a name with %d part(s) has no part $%s", r.parts, p[2])
			}
		}
		r.format = append(r.format, piece{p[1], part})
	}
	if m[4] != "" {
		if r.match, err = regexp.Compile(`^(?:` + m[4] + `)$`); err != nil {
			return r, err
		}
	}
	if strings.HasSuffix(m[0], "/") || strings.HasSuffix(m[0], "/g") {
		if r.from, err = regexp.Compile(m[5]); err != nil {
			return r, err
		}
		r.to, r.all = javaReplacement(m[6]), m[7] != ""
	}
	return r, nil
}

// javaReplacement turns Java's form of a group's name, $1, into Go's form, ${1}.
func javaReplacement(to string) string {
	var b strings.Builder
	for i := 0; i < len(to); i++ {
		switch c := to[i]; {
		case c == '\\' && i+1 < len(to):
			i++
			b.WriteString(strings.ReplaceAll(to[i:i+1], "$", "$$"))
		case c == '$' && i+1 < len(to) && to[i+1] >= '0' && to[i+1] <= '9':
			i++
			b.WriteString("${" + to[i:i+1] + "}")
		case c == '$':
			b.WriteString("$$")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// apply() returns the rule's name for a principal, if the rule matches.
func (r *Rule) apply(p Principal, realm string) (string, bool) {
	if r.isDefault {
		return p.Parts[0], p.Realm == realm
	}
	if len(p.Parts) != r.parts {
		return "", false
	}
	var b strings.Builder
	for _, f := range r.format {
		b.WriteString(f.text)
		switch {
		case f.part == 0:
			b.WriteString(p.Realm)
		case f.part > 0:
			b.WriteString(p.Parts[f.part-1])
		}
	}
	s := b.String()
	switch {
	case r.match != nil && !r.match.MatchString(s):
		return "", false
	case r.from == nil:
		return s, true
	case r.all:
		return r.from.ReplaceAllString(s, r.to), true
	}
	at := r.from.FindStringSubmatchIndex(s)
	if at == nil {
		return s, true
	}
	return s[:at[0]] + string(r.from.ExpandString(nil, r.to, s, at)) + s[at[1]:], true
}

// identity() returns the name by which ACLs know a principal.
func (n Names) identity(p Principal) (string, error) {
	if len(p.Parts) > 2 {
		return "", errors.New("a name of more than two parts cannot stand in an ACL")
	}
	rules := n.Rules
	if len(rules) == 0 {
		rules = []Rule{{isDefault: true}}
	}
	for i := range rules {
		short, ok := rules[i].apply(p, n.realm)
		if !ok {
			continue
		}
		if strings.ContainsAny(short, "/@") {
			break
		}
		if len(p.Parts) == 2 && !n.RemoveHost {
			short += "/" + p.Parts[1]
		}
		if !n.RemoveRealm {
			short += "@" + p.Realm
		}
		if short == "" {
			return "", errors.New("the rules leave its name empty")
		}
		return short, nil
	}
	// No rule matches: take the whole name. ZooKeeper would take the name that the client gives itself. Honest
	// clients give this one, but others could give any.
	return p.String(), nil
}

// Principal is a name of Kerberos: parts/of/it@REALM.
type Principal struct {
	Parts []string
	Realm string
}

func (p Principal) String() string {
	s := strings.Join(p.Parts, "/")
	if p.Realm != "" {
		s += "@" + p.Realm
	}
	return s
}

func (p Principal) equal(q Principal) bool { return p.String() == q.String() }

// maxPrincipal bounds the text of a principal, because it becomes an identity of a connection.
const maxPrincipal = 1024

var errName = errors.New(
	"an ambiguous name: empty, too long, or with one of / @ \\ or a control character in a part")

// check() refuses a name whose text could also mean another name.
func (p Principal) check() error {
	ok := len(p.Parts) > 0 && len(p.String()) <= maxPrincipal
	for _, part := range append([]string{p.Realm}, p.Parts...) {
		ok = ok && part != "" && !strings.ContainsFunc(part, func(r rune) bool {
			return strings.ContainsRune(`/@\`, r) || r < ' ' || r == 0x7f
		})
	}
	if !ok {
		return errName
	}
	return nil
}

// ParsePrincipal reads service/host@REALM. The realm may be missing.
func ParsePrincipal(text string) (Principal, error) {
	names, realm, hasRealm := strings.Cut(text, "@")
	p := Principal{Parts: strings.Split(names, "/"), Realm: realm}
	if !hasRealm {
		p.Realm = "any"
	}
	if err := p.check(); err != nil {
		return Principal{}, fmt.Errorf("%.64q is not a principal: want service/host@REALM", text)
	}
	p.Realm = realm
	return p, nil
}

// principal() makes a Principal of a message's name and realm.
func principal(n name, realm asn1.RawValue) (Principal, error) {
	var p Principal
	for _, raw := range n.Parts {
		s, err := generalString(raw)
		if err != nil {
			return p, err
		}
		p.Parts = append(p.Parts, s)
	}
	var inner asn1.RawValue
	rest, err := asn1.Unmarshal(realm.Bytes, &inner)
	if err != nil || len(rest) > 0 {
		return p, errName
	}
	if p.Realm, err = generalString(inner); err != nil {
		return p, err
	}
	return p, p.check()
}
