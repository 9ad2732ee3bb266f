package oracle

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A script is a program as text: one step per line, "CONN OP name=value…"; '#' begins a comment. A '+' before
// the connection joins a step to the step before it. Strings are quoted as in Go; operations of a multi stand
// in brackets.
//
//	A connect timeout=30000
//	A create path="/a" data="x" acl="31:world:anyone" flags=0
//	+A multi [check path="/a" version=0] [delete path="/a" version=-1]

// String returns the step's line in a script.
func (s Step) String() string {
	var b strings.Builder
	if s.Joined {
		b.WriteByte('+')
	}
	b.WriteString(s.Conn + " ")
	s.format(&b)
	return b.String()
}

func (s *Step) format(b *strings.Builder) {
	b.WriteString(s.Op)
	arg := func(name, value string) { b.WriteString(" " + name + "=" + value) }
	num := func(name string, v int64) { arg(name, strconv.FormatInt(v, 10)) }
	for f := range strings.FieldsSeq(ops[s.Op].fields) {
		switch f {
		case "data3", "data5":
			for i, name := range listNames[:f[4]-'0'] {
				for _, p := range s.Lists[i] {
					arg(name, strconv.Quote(p))
				}
			}
		case "ops":
			for i := range s.Ops {
				b.WriteString(" [")
				s.Ops[i].format(b)
				b.WriteString("]")
			}
		default:
			s.formatArg(f, arg)
		}
	}
	if s.Xid != 0 {
		num("xid", int64(s.Xid))
	}
	if s.Patch != "" {
		num("at", int64(s.At))
		arg("patch", strconv.Quote(s.Patch))
	}
	if s.Cut > 0 {
		num("cut", int64(s.Cut))
	}
	if s.Extra != "" {
		arg("extra", strconv.Quote(s.Extra))
	}
}

// formatArg calls arg() with the name of a field and its value as text.
func (s *Step) formatArg(name string, arg func(name, value string)) {
	switch v := s.field(name).(type) {
	case *string:
		switch {
		case name == "path" && s.NullPath:
			arg(name, "null")
		case name != "session" && name != "password":
			arg(name, strconv.Quote(*v))
		case name == "session" || *v != "":
			arg(name, *v)
		}
	case *[]byte:
		if *v == nil {
			arg(name, "null")
		} else {
			arg(name, strconv.Quote(string(*v)))
		}
	case *bool:
		if *v || name != "readOnly" {
			arg(name, strconv.FormatBool(*v))
		}
	default:
		arg(name, fmt.Sprint(reflect.ValueOf(v).Elem()))
	}
}

// field() returns a pointer to the field that scripts call `name`.
func (s *Step) field(name string) any {
	return map[string]any{
		"path": &s.Path, "data": &s.Data, "acl": &s.ACL, "scheme": &s.Scheme, "cred": &s.Cred, "extra": &s.Extra,
		"patch": &s.Patch, "session": &s.Session, "password": &s.Password,
		"watch": &s.Watch, "old": &s.Old, "readOnly": &s.ReadOnly,
		"flags": &s.Flags, "ttl": &s.TTL, "version": &s.Version, "mode": &s.Mode, "code": &s.Code,
		"timeout": &s.Timeout, "back": &s.Back, "cut": &s.Cut, "xid": &s.Xid, "at": &s.At,
	}[name]
}

var listNames = [5]string{"data", "exist", "child", "persistent", "recursive"}

// String returns the program as a script.
func (p Program) String() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// Parse reads a script.
func Parse(text string) (Program, error) {
	var p Program
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var s Step
		line, s.Joined = strings.CutPrefix(line, "+")
		conn, rest, _ := strings.Cut(line, " ")
		s.Conn = conn
		l := lexer{rest}
		if err := l.step(&s); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if l.rest != "" {
			return nil, fmt.Errorf("line %d: %q is left over", n, l.rest)
		}
		p = append(p, s)
	}
	return p, nil
}

type lexer struct{ rest string }

// step() reads an operation with its arguments, up to the end of the line or a closing bracket.
func (l *lexer) step(s *Step) error {
	s.Op = l.word()
	if _, ok := ops[s.Op]; !ok {
		return fmt.Errorf("unknown operation %q", s.Op)
	}
	for {
		l.rest = strings.TrimLeft(l.rest, " ")
		if l.rest == "" || l.rest[0] == ']' {
			return nil
		}
		if l.rest[0] == '[' {
			l.rest = l.rest[1:]
			var op Step
			if err := l.step(&op); err != nil {
				return err
			}
			if !strings.HasPrefix(l.rest, "]") {
				return fmt.Errorf("missing ] before %q", l.rest)
			}
			l.rest = l.rest[1:]
			s.Ops = append(s.Ops, op)
			continue
		}
		name, rest, ok := strings.Cut(l.rest, "=")
		if !ok {
			return fmt.Errorf("argument without =: %q", l.rest)
		}
		l.rest = rest
		if err := l.arg(s, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func (l *lexer) word() string {
	end := strings.IndexAny(l.rest, " ]")
	if end < 0 {
		end = len(l.rest)
	}
	w := l.rest[:end]
	l.rest = l.rest[end:]
	return w
}

// arg() reads the value of one argument into the field of the step that has the argument's name.
func (l *lexer) arg(s *Step, name string) error {
	var text, bare string
	quoted := strings.HasPrefix(l.rest, `"`)
	if quoted {
		q, err := strconv.QuotedPrefix(l.rest)
		if err != nil {
			return err
		}
		l.rest = l.rest[len(q):]
		if text, err = strconv.Unquote(q); err != nil {
			return err
		}
	} else {
		bare = l.word()
	}
	if i := slices.Index(listNames[:], name); i >= 0 && (s.Op == "setWatches" || s.Op == "setWatches2") {
		s.Lists[i] = append(s.Lists[i], text)
		return nil
	}
	switch v := s.field(name).(type) {
	case nil:
		return fmt.Errorf("unknown argument")
	case *string:
		*v = text + bare
		if name == "path" && !quoted {
			s.Path, s.NullPath = "", true
		}
	case *[]byte:
		if quoted {
			*v = []byte(text)
		}
	case *bool:
		*v = bare == "true"
	default:
		n, err := strconv.ParseInt(bare, 10, 64)
		if err != nil {
			return err
		}
		reflect.ValueOf(v).Elem().SetInt(n)
	}
	return nil
}
