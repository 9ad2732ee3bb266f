package kerberos

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lookAgain is the shortest time between two looks at the keytab while its keys fit the tickets.
const lookAgain = time.Second

// Options say who this server is, and how it names its clients.
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
	stamp  [2]int64 // stamp of the file from which keytab was read
	// `problem` is why the present file cannot be used. It is "" if the file can be used.
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
	// The rule DEFAULT treats the realm of this server's principal as the default realm.
	s.names.realm = s.principal.Realm
	return s, nil
}

// Principal returns this server's principal.
func (s *Service) Principal() string { return s.principal.String() }

// keys() returns the keys of the file. If `look` is false, the keys may have been read up to lookAgain
// earlier. While the file cannot be used, the last good keys stay in use.
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
	// Read an unusable file again at each look, because a change of its mode alone does not change the stamp.
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
