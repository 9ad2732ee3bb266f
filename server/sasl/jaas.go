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
// Each of the modules may be missing. ZooKeeper uses only one of them; this server uses both.

// How the names of the login modules end. The beginning of the name for Kerberos differs between vendors of
// Java.
const (
	moduleDigest   = ".DigestLoginModule"
	moduleKerberos = ".Krb5LoginModule"
)

// looksLikeJAAS reports whether a text is a JAAS file and not a file in zlockd's format. In a JAAS file a
// brace follows the first word.
func looksLikeJAAS(text string) bool {
	words := jaasWords(text)
	return len(words) > 1 && words[1] == "{"
}

// parseJAAS returns the options of a section's login modules.
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

// addOption handles one word of a section; `module` is the module to which the word belongs.
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

// check() refuses a section that would admit no client.
func (f File) check() error {
	if f.Keytab == "" && f.Principal != "" {
		return errors.New("the Krb5LoginModule has no keyTab")
	}
	if f.Keytab == "" {
		return f.Users.notEmpty()
	}
	return nil
}

// jaasWords splits a JAAS file into words and braces. It removes quotes and comments; a semicolon separates
// words like a space.
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
