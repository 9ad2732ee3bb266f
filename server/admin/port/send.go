package port

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Outgoing bounds the memory of answers that clients have not read yet, in total and for each address. A
// handler builds an answer while it holds a place of a Pool. It gives the place back before it sends the
// answer, so that a client that does not read keeps no other request waiting.
type Outgoing struct {
	mu  sync.Mutex
	all int
	by  map[string]int // bytes by address
}

const (
	maxOutgoing     = 128 << 20
	maxOutgoingAddr = 16 << 20
	sendTime        = 5 * time.Second // how long an answer may take; a long one may take longer, see Paced
)

// take counts n more bytes for an address. It returns false if a bound forbids that. The bound of the address
// does not apply to its only answer.
func (o *Outgoing) take(host string, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all+n > maxOutgoing || o.by[host] > 0 && o.by[host]+n > maxOutgoingAddr {
		return false
	}
	if o.by == nil {
		o.by = map[string]int{}
	}
	o.all += n
	o.by[host] += n
	return true
}

func (o *Outgoing) give(host string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all -= n
	if o.by[host] -= n; o.by[host] <= 0 {
		delete(o.by, host)
	}
}

// Send calls write(), which must send an answer of n bytes to the client at `addr`. It refuses to do so if
// too many bytes of answers are unsent.
func (o *Outgoing) Send(addr string, n int, write func() error) error {
	host, _, _ := net.SplitHostPort(addr)
	if !o.take(host, n) {
		return ErrBusy
	}
	defer o.give(host, n)
	return write()
}

// Pace writes a body. It gives up if the client reads it too slowly.
func Pace(w io.Writer, deadline func(time.Time) error, now time.Time, body []byte) error {
	slow := &Paced{Writer: w, Deadline: deadline, End: now.Add(sendTime)}
	_, err := io.Copy(slow, io.LimitReader(bytes.NewReader(body), int64(len(body))))
	return err
}

// Paced reads or writes, and gives up on a client that is too slow. The client has time until End; for each
// MiB that it has read or sent, End moves by a second.
type Paced struct {
	io.Reader
	io.Writer
	// Deadline sets the deadline of the connection. Its errors are ignored: only a test's writer has no
	// deadlines.
	Deadline func(time.Time) error
	End      time.Time
}

const leastRate = 1 << 20 // bytes that a client must read or send in a second

func (p *Paced) do(b []byte, do func([]byte) (int, error)) (int, error) {
	_ = p.Deadline(p.End)
	n, err := do(b)
	p.End = p.End.Add(time.Duration(n) * time.Second / leastRate)
	return n, err
}

func (p *Paced) Read(b []byte) (int, error) { return p.do(b, p.Reader.Read) }

func (p *Paced) Write(b []byte) (int, error) { return p.do(b, p.Writer.Write) }

// built collects an answer, to send it when it is complete.
type built struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (b *built) Header() http.Header            { return b.header }
func (b *built) WriteHeader(code int)           { b.code = code }
func (b *built) Write(part []byte) (int, error) { return b.body.Write(part) }

// InPlace wraps h, so that it runs only while it holds a place of the pool. The answer is sent after the
// place has been given back.
func (o *Outgoing) InPlace(p Pool, now func() time.Time, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, ok := p.Acquire()
		if !ok {
			http.Error(w, ErrBusy.Text, ErrBusy.Status)
			return
		}
		b := &built{header: w.Header(), code: http.StatusOK}
		func() {
			defer release()
			h.ServeHTTP(b, r)
		}()
		o.Answer(w, r, now(), b.code, b.body.Bytes())
	})
}

// Answer sends an answer. `now` is when the client's time to read it begins.
func (o *Outgoing) Answer(w http.ResponseWriter, r *http.Request, now time.Time, code int, body []byte) {
	begun := false
	err := o.Send(r.RemoteAddr, len(body), func() error {
		begun = true
		w.WriteHeader(code)
		return Pace(w, http.NewResponseController(w).SetWriteDeadline, now, body)
	})
	if err != nil && !begun {
		http.Error(w, ErrBusy.Text, ErrBusy.Status)
	}
}

// Places is how many places a Pool has: so many costly answers are built at a time.
const (
	Places    = 4
	placeTime = 5 * time.Second
)

// ErrBusy refuses a costly request because all places are taken.
var ErrBusy = Refuse(http.StatusServiceUnavailable, "too many costly admin questions at once")

// Pool admits a few requests at a time.
type Pool struct {
	places chan struct{}
	Wait   time.Duration // how long a request waits for a place before it is refused
}

// NewPool returns a pool whose places are all free.
func NewPool() Pool { return Pool{make(chan struct{}, Places), placeTime} }

// Taken returns how many places are in use.
func (p Pool) Taken() int { return len(p.places) }

// Acquire waits for a place in the pool, for a limited time.
func (p Pool) Acquire() (release func(), ok bool) {
	t := time.NewTimer(p.Wait)
	defer t.Stop()
	select {
	case p.places <- struct{}{}:
		return func() { <-p.places }, true
	case <-t.C:
		return nil, false
	}
}
