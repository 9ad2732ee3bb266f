package sasl

import (
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

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

// readText reads a file. `open` is an error if every user of the machine can read the file. Then the file
// must not contain secrets.
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
