package oracle

import (
	"fmt"
	"strconv"
	"strings"
)

// A script is a program as text: one step per line, "CONN OP name=value…"; '#' begins a
// comment. A '+' before the connection joins a step to the one before. Strings are quoted as
// in Go; operations of a multi stand in brackets.
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
		case "path":
			if s.NullPath {
				arg(f, "null")
			} else {
				arg(f, strconv.Quote(s.Path))
			}
		case "data":
			if s.Data == nil {
				arg(f, "null")
			} else {
				arg(f, strconv.Quote(string(s.Data)))
			}
		case "acl":
			arg(f, strconv.Quote(s.ACL))
		case "flags":
			num(f, int64(s.Flags))
		case "ttl":
			num(f, s.TTL)
		case "version":
			num(f, int64(s.Version))
		case "mode":
			num(f, int64(s.Mode))
		case "code":
			num(f, int64(s.Code))
		case "timeout":
			num(f, int64(s.Timeout))
		case "back":
			num(f, int64(s.Back))
		case "watch":
			arg(f, strconv.FormatBool(s.Watch))
		case "old":
			arg(f, strconv.FormatBool(s.Old))
		case "readOnly":
			if s.ReadOnly {
				arg(f, "true")
			}
		case "scheme":
			arg(f, strconv.Quote(s.Scheme))
		case "cred":
			arg(f, strconv.Quote(s.Cred))
		case "session":
			arg(f, s.Session)
		case "password":
			if s.Password != "" {
				arg(f, s.Password)
			}
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

// step reads an operation with its arguments, up to the end of the line or a
// closing bracket.
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

// arg reads the value of one argument into its field.
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
	var num int64
	switch name {
	case "flags", "ttl", "version", "mode", "code", "timeout", "back", "cut", "xid", "at":
		var err error
		if num, err = strconv.ParseInt(bare, 10, 64); err != nil {
			return err
		}
	}
	lists := s.Op == "setWatches" || s.Op == "setWatches2"
	switch name {
	case "path":
		s.Path, s.NullPath = text, !quoted
	case "data":
		if lists {
			s.Lists[0] = append(s.Lists[0], text)
		} else if quoted {
			s.Data = []byte(text)
		}
	case "exist":
		s.Lists[1] = append(s.Lists[1], text)
	case "child":
		s.Lists[2] = append(s.Lists[2], text)
	case "persistent":
		s.Lists[3] = append(s.Lists[3], text)
	case "recursive":
		s.Lists[4] = append(s.Lists[4], text)
	case "acl":
		s.ACL = text
	case "flags":
		s.Flags = int32(num)
	case "ttl":
		s.TTL = num
	case "version":
		s.Version = int32(num)
	case "mode":
		s.Mode = int32(num)
	case "code":
		s.Code = int32(num)
	case "timeout":
		s.Timeout = int32(num)
	case "back":
		s.Back = int(num)
	case "cut":
		s.Cut = int(num)
	case "xid":
		s.Xid = int32(num)
	case "at":
		s.At = int(num)
	case "patch":
		s.Patch = text
	case "readOnly":
		s.ReadOnly = bare == "true"
	case "watch":
		s.Watch = bare == "true"
	case "old":
		s.Old = bare == "true"
	case "scheme":
		s.Scheme = text
	case "cred":
		s.Cred = text
	case "extra":
		s.Extra = text
	case "session":
		s.Session = bare
	case "password":
		s.Password = bare
	default:
		return fmt.Errorf("unknown argument")
	}
	return nil
}
