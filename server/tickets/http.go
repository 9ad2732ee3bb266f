package tickets

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree/bounds"
)

const (
	header   = "Zlock-Ticket"
	locks    = "/v1/locks"
	rates    = "/v1/rates"
	maxBody  = 8 << 10
	minToken = 22
	maxToken = 64

	answerTime = 30 * time.Second // how long an answer may take to be written
)

// otherSites finds requests that a browser sends for a page of another site. A server without tokens needs it
// for draws. Other requests carry a header for which a browser first asks the server's permission; a draw
// need not have such a header.
var otherSites = http.NewCrossOriginProtection()

// ServeHTTP implements http.Handler. It matches the paths itself, because a router would redirect some of
// them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	a := s.answer(w, r)
	switch f, _ := a.Body.(*failure); a.Code {
	case http.StatusTooManyRequests:
		if f.Error != "rate" { // not counted here: that a rate is used up is an ordinary answer
			s.refused.Add(1)
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		s.refused.Add(1)
	}
	if a.ETag != "" {
		h.Set("ETag", a.ETag)
	}
	if a.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.Retry.Seconds()))))
	}
	if a.Body == nil {
		w.WriteHeader(a.Code)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.Code)
	_ = json.NewEncoder(w).Encode(a.Body) // an error here only means that the caller has disconnected
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) *Answer {
	q := &Request{Arrived: time.Now(), Mode: exclusive, tokens: s.tokens.Load()}
	if s.o.KnownHost != nil && !s.o.KnownHost(r.Host) {
		return fail(http.StatusMisdirectedRequest, "host", "this server has no host name %.200q: use its "+
			"address, or allow the name with --admin-hosts", r.Host)
	}
	if err := otherSites.Check(r); err != nil {
		return fail(http.StatusForbidden, "forbidden", "a page of another site sends this request: %v", err)
	}
	q.Addr, _, _ = net.SplitHostPort(r.RemoteAddr)
	var a *Answer
	if q.Identity, a = s.identify(r, q.Addr, q.tokens); a != nil {
		if a.Code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		return a
	}
	if a = s.begin(r.Context(), &q.Identity); a != nil {
		return a
	}
	defer func() { s.finish(&q.Identity, q.seen) }()
	if r.URL.Path == "/v1/tickets" {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", "GET")
			return fail(http.StatusMethodNotAllowed, "method", "use GET for the list of tickets")
		}
		return s.List(q)
	}
	path, found := strings.CutPrefix(r.URL.Path, locks)
	if !found {
		path, found = strings.CutPrefix(r.URL.Path, rates)
		q.Draws, q.Looks = found, r.Method == http.MethodGet
	}
	if !found {
		return fail(http.StatusBadRequest, "path", // 404 would say that the ticket is over
			"there is no such page: want /v1/locks/PATH, /v1/rates/PATH or /v1/tickets")
	}
	if q.Path = path; !bounds.ValidPath(path) || path == "/" || path == "/zookeeper" ||
		strings.HasPrefix(path, "/zookeeper/") || len(path) > bounds.MaxPath/2 {
		return fail(http.StatusBadRequest, "path", "%.200q is not the path of a lock or a rate", path)
	}
	if !q.Identity.may(path) {
		return fail(http.StatusForbidden, "forbidden", "this identity may have no ticket on %.200s", path)
	}
	known, a := q.read(w, r, s.o.Max)
	if a != nil {
		return a
	}
	if q.Wait > 0 {
		c := http.NewResponseController(w)
		// Ignore the errors: every real connection has deadlines, and only the ResponseWriter of a test has none.
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Now().Add(q.Wait + 2*answerTime))
	}
	switch {
	case q.Looks:
		return s.ShowRate(q)
	case q.Draws && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		return fail(http.StatusMethodNotAllowed, "method", "a rate takes GET and POST")
	case q.Draws:
		return s.Draw(r.Context(), q, known)
	case r.Method == http.MethodGet:
		return s.Show(r.Context(), q, known)
	case r.Method != http.MethodPost && r.Method != http.MethodDelete:
		w.Header().Set("Allow", "GET, POST, DELETE")
		return fail(http.StatusMethodNotAllowed, "method", "a lock takes GET, POST and DELETE")
	case !known:
		return fail(http.StatusBadRequest, "secret", "the header %s is missing: make a secret of %d to %d "+
			"random characters and send it with every request", header, minToken, maxToken)
	case r.Method == http.MethodPost:
		return s.Take(r.Context(), q)
	}
	return s.Give(r.Context(), q)
}

// read() reads the secret and the parameters. It reports whether the request has a secret.
func (q *Request) read(w http.ResponseWriter, r *http.Request, most time.Duration) (known bool, a *Answer) {
	secrets := r.Header.Values(header)
	if len(secrets) > 1 {
		return false, fail(http.StatusBadRequest, "secret", "there are %d headers %s", len(secrets), header)
	}
	if len(secrets) == 1 {
		if err := checkSecret(secrets[0]); err != nil {
			return false, fail(http.StatusBadRequest, "secret", "%v", err)
		}
		kind := "ticket"
		if q.Draws { // with the name: different callers may use the same secret for draws
			kind = "draw\x00" + q.Identity.Name
		}
		known, q.Secret = true, session.Hash(sha256.Sum256([]byte("zlockd "+kind+"\x00"+secrets[0])))
	}
	q.IfMatch, q.IfNoneMatch = r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
			return known, fail(http.StatusRequestEntityTooLarge, "long", "the body is longer than %d bytes",
				maxBody)
		}
		return known, fail(http.StatusBadRequest, "parameters", "the parameters cannot be read")
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 { // ParseForm did not read it, and it may have parameters
		return known, fail(http.StatusBadRequest, "parameters", "the body is not a form: send the parameters in "+
			"the address, or with Content-Type: application/x-www-form-urlencoded")
	}
	if err := q.parameters(r.Form, most); err != nil {
		return known, fail(http.StatusBadRequest, "parameters", "%v", err)
	}
	return known, nil
}

// checkSecret refuses secrets that can be guessed. The error does not contain the secret.
func checkSecret(s string) error {
	if len(s) < minToken || len(s) > maxToken {
		return fmt.Errorf("the secret has %d characters: want %d to %d random ones", len(s), minToken, maxToken)
	}
	seen := map[rune]bool{}
	for _, c := range s {
		if c <= ' ' || c > '~' {
			return errors.New("the secret may have only letters, digits and signs of ASCII")
		}
		seen[c] = true
	}
	if len(seen) < 8 {
		return fmt.Errorf("the secret has only %d different characters: it can be guessed", len(seen))
	}
	return nil
}

func (q *Request) parameters(form url.Values, most time.Duration) error {
	for name, values := range form {
		if len(values) > 1 {
			return fmt.Errorf("there are %d values of %.40q: give only one", len(values), name)
		}
		read := q.parameter
		if q.Draws {
			read = q.drawParameter
		}
		if err := read(name, values[0], most); err != nil {
			return err
		}
	}
	switch {
	case q.Draws && (q.Looks || q.Limit != 0 && q.Per != 0):
	case q.Draws:
		return errors.New("a draw needs limit and per, such as limit=100&per=1m")
	case q.Mode != permit && (q.Permits != 0 || q.Limit != 0):
		return errors.New("permits and limit need mode=permit")
	case q.Mode == permit && q.Layout == recipe.LayoutKazoo:
		return errors.New("mode=permit and layout=kazoo exclude each other: kazoo's permits have no numbers")
	}
	return nil
}

func (q *Request) parameter(name, value string, most time.Duration) (err error) {
	switch name {
	case "mode":
		modes := map[string]byte{"exclusive": exclusive, "shared": shared, "permit": permit}
		if q.Mode = modes[value]; q.Mode == 0 {
			return fmt.Errorf("mode %.40q: want exclusive, shared or permit", value)
		}
		q.ModeGiven = true
	case "permits":
		q.Permits, err = number(name, value, MaxPermits)
		return err
	case "limit":
		q.Limit, err = number(name, value, MaxLimit)
		return err
	case "layout":
		if q.Layout, err = recipe.ParseLayout(value); err != nil ||
			q.Layout != recipe.LayoutCurator && q.Layout != recipe.LayoutKazoo {
			return fmt.Errorf("layout %.40q: want curator or kazoo", value)
		}
	case "ttl":
		if q.TTL, err = duration(name, value, MinTTL, most); err != nil {
			return err
		}
	case "wait":
		if q.Wait, err = duration(name, value, 0, MaxWait); err != nil {
			return err
		}
	case "queue":
		if value != "no" && value != "yes" {
			return fmt.Errorf("queue %.40q: want yes or no", value)
		}
		q.Try = value == "no"
	case "until":
		if q.Until, err = time.Parse(time.RFC3339, value); err != nil || q.Until.IsZero() {
			return fmt.Errorf("until %.40q: want a time such as 2026-11-27T18:00:00Z", value)
		}
	case "reason":
		q.Reason = value
		return text(name, value)
	case "who":
		q.Who = value
		return text(name, value)
	default:
		return fmt.Errorf("there is no parameter %.40q", name)
	}
	return nil
}
