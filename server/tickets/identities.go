package tickets

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/secretfile"
	"github.com/zlockd/zlockd/server/clients/identity"
)

// Identity is a caller with its rights.
type Identity struct {
	Name  string    // the name that the state stores with a ticket
	IDs   []jute.ID // the identities whose access rights the caller has
	Paths []string  // the identity may have tickets at and below these paths; nil: everywhere

	Tickets int // how many tickets the identity may have
	OnPath  int // how many tickets the identity may have on one path
	Waits   int // how many waits the identity may have at one server
	Rate    int // how many tickets the identity may open in a second at one server
	Rates   int // how many nodes the identity's rates may have, with the directories that were made for them
}

// newIdentity returns an identity with the default bounds.
func newIdentity(name string) Identity {
	return Identity{Name: name, Tickets: 100, OnPath: 10, Waits: 20, Rate: 50, Rates: 1000}
}

// may() reports whether the identity may have tickets on a path.
func (i *Identity) may(path string) bool {
	if i.Paths == nil {
		return true
	}
	for _, p := range i.Paths {
		if p == "/" || path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// Tokens are the bearer tokens with their identities.
type Tokens struct {
	by map[[sha256.Size]byte]Identity
}

// ReadTokens reads a file of lines NAME HASH PATHS [tickets=N] [path=N] [waits=N] [rate=N] [rates=N]. HASH is
// the SHA-256 of the token in hexadecimal, and PATHS are separated by commas.
func ReadTokens(file string) (*Tokens, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := secretfile.Check(file, info); err != nil { // even a hash is secret: it reveals a short token
		return nil, err
	}
	t := &Tokens{by: map[[sha256.Size]byte]Identity{}}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := t.add(words); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n, err)
		}
	}
	return t, lines.Err()
}

func (t *Tokens) add(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("it has %d words: want NAME HASH PATHS", len(words))
	}
	hash, err := hex.DecodeString(words[1])
	if err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("the hash of %s is not a SHA-256 of 64 hexadecimal digits: make it with "+
			"printf %%s TOKEN | sha256sum", words[0])
	}
	if [sha256.Size]byte(hash) == sha256.Sum256(nil) {
		return fmt.Errorf("the hash of %s is the hash of an empty text: printf %%s TOKEN printed no token",
			words[0])
	}
	if _, twice := t.by[[sha256.Size]byte(hash)]; twice {
		return fmt.Errorf("the token of %s is listed twice", words[0])
	}
	i := newIdentity("sasl:" + words[0])
	i.IDs = []jute.ID{{Scheme: "sasl", ID: words[0]}}
	i.Paths = []string{}
	for _, p := range strings.Split(words[2], ",") {
		if p != "/" {
			p = strings.TrimSuffix(p, "/")
		}
		if !strings.HasPrefix(p, "/") {
			return fmt.Errorf("path %q does not begin with a slash", p)
		}
		i.Paths = append(i.Paths, p)
	}
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		bound := map[string]*int{"tickets": &i.Tickets, "path": &i.OnPath, "waits": &i.Waits,
			"rate": &i.Rate, "rates": &i.Rates}[name]
		n, err := strconv.Atoi(value)
		if bound == nil || err != nil || n < 0 || n > 1_000_000 {
			return fmt.Errorf("%q is not a bound: want tickets=N, path=N, waits=N, rate=N or rates=N", w)
		}
		*bound = n
	}
	t.by[[sha256.Size]byte(hash)] = i
	return nil
}

// SetTokens replaces the callers' tokens. All waits end, and the server checks their callers when they ask
// again. After tokens were set, nil admits no caller. Otherwise a server whose tokens are removed would serve
// everyone.
func (s *Server) SetTokens(t *Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.tokens.Load()
	if t == nil && old != nil {
		t = &Tokens{}
	}
	if reflect.DeepEqual(old, t) {
		return
	}
	s.tokens.Store(t)
	select {
	case <-s.off:
	default:
		close(s.off)
		s.off = make(chan struct{})
	}
}

// identify() finds the identity of a caller by its token or certificate, or refuses the caller.
func (s *Server) identify(r *http.Request, host string, tokens *Tokens) (Identity, *Answer) {
	ids := *identity.Unproved(host, s.o.SkipACL)
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case r.Header.Get("Authorization") != "":
		var i Identity
		known := false
		if tokens != nil && strings.EqualFold(scheme, "bearer") {
			i, known = tokens.by[sha256.Sum256([]byte(strings.TrimSpace(token)))]
		}
		if !known {
			// before failed(), because the caller can end the delay
			s.audit("login", &Request{Identity: Identity{IDs: ids}, Addr: host}, resultFailed)
			s.failed(r.Context(), host)
			return i, fail(http.StatusUnauthorized, "unauthorized", "no identity has this token")
		}
		i.IDs = append(append([]jute.ID(nil), ids...), i.IDs...)
		return i, nil
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		subject, err := identity.Subject(r.TLS.PeerCertificates[0].RawSubject)
		if err != nil || subject == "" {
			return Identity{}, fail(http.StatusUnauthorized, "unauthorized", "the certificate names no subject")
		}
		i := newIdentity(identity.X509 + ":" + subject)
		i.IDs = append(append([]jute.ID(nil), ids...), jute.ID{Scheme: identity.X509, ID: subject})
		return i, nil
	case tokens != nil || s.o.TLS:
		return Identity{}, fail(http.StatusUnauthorized, "unauthorized",
			"the request has no identity: want Authorization: Bearer TOKEN, or a certificate")
	}
	i := newIdentity("ip:" + host)
	i.IDs = ids
	return i, nil
}
