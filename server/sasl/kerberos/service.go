package kerberos

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lookAgain is how long the keys are used before the server checks the file for a change. If no key fits a
// ticket, it checks at once.
const lookAgain = time.Second

// Options say who the server is, and how it names its clients.
type Options struct {
	Keytab    string // the file with this server's keys, read again when it changes
	Principal string // service/host@REALM; empty: the only principal in the keytab
	Names     Names
	Logger    *slog.Logger
}

// Service accepts clients' tickets. It is safe for use by several goroutines.
type Service struct {
	principal Principal
	names     Names
	file      string
	log       *slog.Logger
	replays   replays

	mu     sync.Mutex // guards the fields below
	keytab keytab     // only the keys of `principal`
	looked time.Time
	stamp  [2]int64 // time and size of the file from which `keytab` was read
	// problem is why the file cannot be used as it is now; "" if it can be used.
	problem string
}

// New reads the keytab.
func New(o Options) (*Service, error) {
	s := &Service{names: o.Names, file: o.Keytab, log: cmp.Or(o.Logger, slog.Default()),
		stamp: stampOf(o.Keytab)}
	all, err := readKeytab(o.Keytab)
	if err != nil {
		return nil, err
	}
	if s.principal, s.keytab, err = all.choose(o.Principal); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Keytab, err)
	}
	// For the rule DEFAULT, the server's own realm is the default realm.
	s.names.realm = s.principal.Realm
	return s, nil
}

// Principal returns this server's principal.
func (s *Service) Principal() string { return s.principal.String() }

// keys() returns the keys in the file. If `look` is true, it looks whether the file has changed; otherwise it
// does so at most once in lookAgain. If the file cannot be used, the keys that it had before stay in use.
func (s *Service) keys(now time.Time, look bool) keytab {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.looked); !look && since >= 0 && since < lookAgain {
		return s.keytab
	}
	s.looked = now
	stamp := stampOf(s.file)
	if stamp == s.stamp {
		return s.keytab
	}
	all, err := readKeytab(s.file)
	var mine keytab
	if err == nil {
		_, mine, err = all.choose(s.principal.String())
	}
	// Keep the old stamp, so that the file is read again next time: if only its mode is wrong, a correction of
	// that does not change the stamp.
	if err != nil {
		if text := err.Error(); text != s.problem {
			s.log.Error("the keytab has changed and cannot be used; the old keys stay", "file", s.file, "err", err)
			s.problem = text
		}
		return s.keytab
	}
	s.log.Info("keytab read again", "file", s.file, "principal", s.principal.String())
	s.keytab, s.stamp, s.problem = mine, stamp, ""
	return mine
}
