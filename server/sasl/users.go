package sasl

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

// Users are the names and passwords of the users that may authenticate.
type Users map[string]string

// Limits of a file of users.
const (
	maxUsersFile = 8 << 20
	maxUserName  = 255
)

// File is the content of a file of users. Only a JAAS file has both mechanisms.
type File struct {
	Users             Users
	Keytab, Principal string // the options of a Krb5LoginModule
}

// ReadFile reads a file of users: a line `name:password` for each user, or the section Server of a JAAS file.
func ReadFile(path string) (File, error) {
	text, open, err := readText(path)
	if err != nil {
		return File{}, err
	}
	var f File
	if looksLikeJAAS(text) {
		f, err = parseJAAS(text, "Server")
	} else {
		f.Users, err = parseUsers(text)
	}
	switch {
	case err != nil:
		return File{}, fmt.Errorf("%s: %w", path, err)
	case len(f.Users) > 0 && open != nil:
		return File{}, open
	}
	return f, nil
}

// readText reads a file. open is an error if every user of the machine can read the file, so that it should
// contain no secret.
func readText(path string) (text string, open, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	switch {
	case info.IsDir():
		return "", nil, fmt.Errorf("%s is a directory, not a file of users", path)
	case info.Size() > maxUsersFile:
		return "", nil, fmt.Errorf("%s has %d bytes; a file of users has at most %d", path, info.Size(),
			maxUsersFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	if !utf8.Valid(b) {
		return "", nil, fmt.Errorf("%s is not text in UTF-8", path)
	}
	return string(b), secretfile.Check(path, info), nil
}

// parseUsers reads a line `name:password` for each user. It skips blank lines and lines that begin with #. A
// password may contain colons.
func parseUsers(text string) (Users, error) {
	users := Users{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, maxUsersFile)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), "\r")
		if t := strings.TrimSpace(line); t == "" || t[0] == '#' {
			continue
		}
		name, password, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("line %d: want name:password", n)
		}
		if err := users.add(strings.TrimSpace(name), password); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return users, users.notEmpty()
}

func (u Users) add(name, password string) error {
	switch _, twice := u[name]; {
	case name == "" || len(name) > maxUserName:
		return fmt.Errorf("the name of a user has 1 to %d bytes", maxUserName)
	case password == "":
		return fmt.Errorf("user %q has no password", name)
	case twice:
		return fmt.Errorf("user %q is listed twice", name)
	}
	u[name] = password
	return nil
}

func (u Users) notEmpty() error {
	if len(u) == 0 {
		return errors.New("it names no user")
	}
	return nil
}
