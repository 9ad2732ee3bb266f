package ticket

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// NewSecret makes a secret.
func NewSecret() string { return rand.Text() + rand.Text()[:6] }

// Read reads a ticket in a file: a secret and the path of its lock. If the file does not exist and `path` is
// not empty, Read first makes the file, with a new secret; only its owner can read it.
func Read(file, path string) (secret, of string, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && path != "" {
		if err := write(file, Text(NewSecret(), path)+"\n"); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", "", err
		}
		return Read(file, "") // the file exists by now: this call, or another one before it, has made it
	}
	if err != nil {
		return "", "", err
	}
	if secret, of = Parse(string(b)); secret == "" {
		return "", "", fmt.Errorf("%s is empty: remove it", file)
	}
	return secret, of, nil
}

// write() makes a file with a text. If the process is killed, the file is whole or does not exist.
func write(file, text string) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".zlock-ticket-") // CreateTemp uses mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// Use a link, because a rename would replace a file that another process has made. But some file systems
	// have no links.
	if err = os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(f.Name(), file)
	}
	return err
}

// Text writes a ticket: its secret, and the path of its lock.
func Text(secret, path string) string { return secret + " " + path }

// Parse reads what Text wrote, or a secret alone.
func Parse(text string) (secret, path string) {
	secret, path, _ = strings.Cut(strings.TrimSpace(text), " ")
	return secret, strings.TrimSpace(path)
}

// ticketName matches the name of a ticket, which is also the name of its file.
var ticketName = regexp.MustCompile(`^t-[a-z2-7]{12}$`)

func newTicketName() string { return "t-" + strings.ToLower(rand.Text()[:12]) }

func (l *lockTools) file(name string) string { return filepath.Join(l.dir, name) }

// sweepTickets removes files of tickets that were not used for a month. No ticket lasts that long unused.
func sweepTickets(dir string, now time.Time) {
	list, _ := os.ReadDir(dir)
	for _, f := range list {
		info, err := f.Info()
		if err == nil && ticketName.MatchString(f.Name()) && now.Sub(info.ModTime()) > 30*24*time.Hour {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}
