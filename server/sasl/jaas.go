package sasl

import (
	"errors"
	"fmt"
	"strings"
)

// The part of a JAAS file that zlockd reads:
//
//	Server {
//	    com.sun.security.auth.module.Krb5LoginModule required
//	    useKeyTab=true keyTab="/etc/zookeeper.keytab" storeKey=true
//	    principal="zookeeper/host.example.org@EXAMPLE.ORG";
//
//	    org.apache.zookeeper.server.auth.DigestLoginModule required
//	    user_super="admin secret"
//	    user_bob="bob's";
//	};
//
// There may be one login module or both. A ZooKeeper uses one of them; zlockd uses both.

// The ends of the names of login modules. How the name for Kerberos begins depends on the vendor of Java.
const (
	moduleDigest   = ".DigestLoginModule"
	moduleKerberos = ".Krb5LoginModule"
)

// looksLikeJAAS reports whether a text is a JAAS file, in which a brace follows the first word. Otherwise it
// is a file in zlockd's format.
func looksLikeJAAS(text string) bool {
	words := jaasWords(text)
	return len(words) > 1 && words[1] == "{"
}

// parseJAAS returns what the login modules of one section say.
func parseJAAS(text, section string) (File, error) {
	words := jaasWords(text)
	for i := 0; i+1 < len(words); i++ {
		if words[i] != section || words[i+1] != "{" {
			continue
		}
		var f File
		module := ""
		for _, w := range words[i+2:] {
			if w == "}" {
				return f, f.check()
			}
			if err := f.addOption(w, &module); err != nil {
				return File{}, err
			}
		}
		return File{}, fmt.Errorf("section %s has no end", section)
	}
	return File{}, fmt.Errorf("there is no section %s", section)
}

// addOption handles one word of a section: the name of a login module, which it stores in *module, or an
// option of the present module.
func (f *File) addOption(word string, module *string) error {
	name, value, isOption := strings.Cut(word, "=")
	user, isUser := strings.CutPrefix(name, "user_")
	switch {
	case !isOption && strings.HasSuffix(word, "LoginModule"):
		if !strings.HasSuffix(word, moduleDigest) && !strings.HasSuffix(word, moduleKerberos) {
			return fmt.Errorf("login module %s is not supported; the supported modules are "+
				"org.apache.zookeeper.server.auth.DigestLoginModule and "+
				"com.sun.security.auth.module.Krb5LoginModule", word)
		}
		*module = word
	case isOption && isUser:
		if f.Users == nil {
			f.Users = Users{}
		}
		return f.Users.add(user, value)
	case strings.HasSuffix(*module, moduleKerberos) && strings.EqualFold(name, "keyTab"):
		f.Keytab = strings.TrimPrefix(value, "FILE:")
	case strings.HasSuffix(*module, moduleKerberos) && name == "principal" && value != "*":
		f.Principal = value
	}
	return nil
}

// check() refuses a section with which no client could authenticate.
func (f File) check() error {
	if f.Keytab == "" && f.Principal != "" {
		return errors.New("the Krb5LoginModule has no keyTab")
	}
	if f.Keytab == "" {
		return f.Users.notEmpty()
	}
	return nil
}

// jaasWords splits a JAAS file into words and braces. It removes quotes and comments. A semicolon ends a
// word, as a space does.
func jaasWords(text string) []string {
	var words []string
	var word strings.Builder
	inWord := false
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inWord = true
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' && i+1 < len(text) {
					i++
				}
				word.WriteByte(text[i])
			}
		case strings.HasPrefix(text[i:], "//") || c == '#' && !inWord:
			end()
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.HasPrefix(text[i:], "/*"):
			end()
			n := strings.Index(text[i+2:], "*/")
			if n < 0 {
				return words
			}
			i += n + 3
		case c == '{' || c == '}':
			end()
			words = append(words, string(c))
		case c == ';' || c == ' ' || c == '\t' || c == '\n' || c == '\r':
			end()
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	end()
	return words
}
