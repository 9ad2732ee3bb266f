package sasl

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// Users are the names and passwords of the users that may authenticate.
type Users map[string]string

// Limits of a file of users.
const (
	maxUsersFile = 8 << 20
	maxUserName  = 255
)

// File is what a file of users contains. Only a JAAS file can have keys for Kerberos, too.
type File struct {
	Users             Users
	Keytab, Principal string // the options of a Krb5LoginModule
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
