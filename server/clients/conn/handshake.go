package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/session"
)

// maxHello bounds a connect request, which is 45 bytes long in practice.
const maxHello = 1 << 10

// wordTime bounds each read and write for a four-letter word, until Words.Answer() sets its own deadlines.
const wordTime = 5 * time.Second

// maxConnecting bounds how many connect requests wait for their outcomes at a time. After a server's death
// tens of thousands arrive at once, and other requests must not wait for all of them.
const maxConnecting = 256

// admission counts the clients that are about to have a session. Any goroutine may use it.
type admission struct {
	connecting chan struct{} // a token for each connect request that waits for its outcome
	creating   atomic.Int64  // how many of these requests create sessions that are not in the state yet
}

// open() opens the connection's session. It returns ends.None, or the reason of a failure.
func (c *Conn) open() ends.Reason {
	if why := c.startTLS(); why != ends.None {
		return why
	}
	for c.reader.in.Len() < 4 {
		if n, err := c.reader.in.Fill(c.out.NC); err != nil {
			return c.readFailed(err)
		} else {
			c.shared.Metrics.BytesReceived.Add(int64(n))
		}
	}
	first := [4]byte(c.reader.in.Bytes())
	if c.shared.words != nil && c.shared.words.IsWord(first) {
		return c.answerWord(first)
	}
	if c.foreign(first) {
		return ends.Plain
	}
	// Store the phase before asking whether the server serves. Serving(false) does these two steps in the other
	// order, so that either this function or Serving(false) closes the connection.
	c.phase.Store(int32(phaseConnect))
	c.readOnly = !c.shared.Entrance.Open()
	r := c.shared.Entrance.Replica()
	if r == nil || c.readOnly && !c.shared.Entrance.ReadOnly() {
		c.shared.Metrics.ClosedNotServing.Add(1)
		return ends.Serving
	}
	c.replica = r
	frame, why := c.helloFrame(first)
	if why != ends.None {
		return why
	}
	return c.connect(frame)
}

// startTLS completes the TLS handshake, if the port has TLS.
func (c *Conn) startTLS() ends.Reason {
	t, ok := c.out.NC.(*tls.Conn)
	if !ok {
		return ends.None
	}
	if !c.afford(request.HandshakeSteps) {
		return ends.Else
	}
	if err := t.HandshakeContext(c.shared.ctx); err != nil {
		c.shared.Metrics.TLSHandshakeFailed.Add(1)
		c.say("TLS handshake failed", "err", err)
		return ends.TLS
	}
	if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
		subject, err := identity.Subject(certs[0].RawSubject)
		if err != nil {
			c.shared.Metrics.TLSHandshakeFailed.Add(1)
			c.say("the subject of the client's certificate has no text", "err", err)
			return ends.TLS
		}
		// A certificate may have no subject and name its owner in other fields. Then it proves no identity.
		if subject != "" && !c.proof.IDs.Add(jute.ID{Scheme: identity.X509, ID: subject}, c.shared.Options.Super) {
			return ends.Auth
		}
	}
	return ends.None
}

// helloFrame returns the first frame.
func (c *Conn) helloFrame(first [4]byte) ([]byte, ends.Reason) {
	if binary.BigEndian.Uint32(first[:]) > maxHello { // a negative length counts as too large
		c.shared.Metrics.HandshakeFailed.Add(1)
		return nil, ends.Length
	}
	for {
		if frame, _, _ := c.reader.in.Peek(maxHello); frame != nil {
			c.reader.in.Take(frame)
			return frame, ends.None
		}
		n, err := c.reader.in.Fill(c.out.NC)
		if err != nil {
			return nil, c.readFailed(err)
		}
		c.shared.Metrics.BytesReceived.Add(int64(n))
	}
}

// foreign() answers clients that speak HTTP instead of ZooKeeper's protocol. It also recognises clients that
// speak TLS on a port without TLS.
func (c *Conn) foreign(first [4]byte) bool {
	switch string(first[:]) {
	case "GET ", "POST", "HEAD", "PUT ":
		text := "This port speaks the ZooKeeper protocol.\n"
		if at := c.shared.adminURL; at != "" {
			text = fmt.Sprintf("This port speaks the ZooKeeper protocol. The admin pages are at %s/\n", at)
		}
		c.out.Last([]byte(fmt.Sprintf(
			"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: "+
				"close\r\n\r\n%s", len(text), text)), ends.Plain)
	default:
		if first[0] != 0x16 || first[1] != 3 {
			return false
		}
	}
	c.shared.Counts.Foreign.Add(1)
	c.say("not the ZooKeeper protocol", "bytes", fmt.Sprintf("%q", first[:]))
	return true
}

// answerWord answers a four-letter word. The client may have closed its side already, so answerWord reads
// only the bytes that belong to the word. Words.Answer() bounds the number of costly answers; cheap answers,
// such as health checks, do not wait for costly ones.
func (c *Conn) answerWord(first [4]byte) ends.Reason {
	c.phase.Store(int32(phaseWord))
	c.seen(1, 0, nil)
	c.reader.in.Skip(4)
	c.out.NC.SetDeadline(time.Now().Add(wordTime))
	conn := wordConn{c.out.NC, io.MultiReader(bytes.NewReader(c.reader.in.Bytes()), c.out.NC)}
	if err := c.shared.words.Answer(conn, first); err != nil {
		c.shared.Log.Info("four-letter word not answered", "word", string(first[:]), "addr", c.from.Host,
			"err", err)
	}
	c.out.Last(nil, ends.Word)
	return ends.Word
}

// wordConn is the connection that Words.Answer gets. Its reader `in` begins with the bytes that arrived with
// the word. The methods of net.Conn let the answer move the deadline if it is long.
type wordConn struct {
	net.Conn
	in io.Reader
}

func (w wordConn) Read(b []byte) (int, error) { return w.in.Read(b) }

// connect answers the connect request with a session or a refusal, or closes the connection without an
// answer. A client takes a refusal as the end of its session, so the server refuses only when the session has
// certainly ended. While the server knows no leader it admits only clients that ask for a read-only session.
func (c *Conn) connect(frame []byte) ends.Reason {
	s := c.shared
	r, err := jute.DecodeConnectRequest(frame)
	if err != nil {
		s.Metrics.HandshakeFailed.Add(1)
		return ends.Malformed
	}
	s.Metrics.ConnectionRequests.Add(1)
	c.reader.arrived = s.Now()
	if !c.afford(request.SessionSteps) { // charge also for a session that will be refused: it costs as much
		return ends.Else
	}
	req := state.Request{Op: state.OpCreateSession}
	if r.SessionID != 0 {
		req = state.Request{Op: state.OpAttach, Session: r.SessionID}
	}
	c.seen(1, req.Op, nil) // without the body: it contains a password, and logs may record a request
	c.mayRead = r.HasReadOnly
	if c.readOnly && !r.ReadOnly {
		s.Metrics.ClosedNotServing.Add(1)
		return ends.Serving
	}
	body := state.SessionBody{Timeout: s.Options.Negotiate(r.Timeout), Owner: s.Options.ID, Addr: c.from.Host}
	if !c.caughtUp(r.LastZxidSeen, time.Duration(body.Timeout)*time.Millisecond) {
		return ends.Behind // check this before the password: a server that lags must not refuse a session
	}
	if r.SessionID != 0 {
		s.Metrics.Revalidated.Add(1)
		c.asked = r.SessionID
		if len(r.Password) != len(body.Password) {
			return c.refuse() // no session has a password of this length
		}
		body.Password = [jute.PasswordSize]byte(r.Password)
		switch known, right := c.knows(r.SessionID, body.Password); {
		case c.readOnly && !right:
			return ends.Serving // only a leader knows whether the session has ended
		case known && !right:
			return c.refuse()
		}
	} else if _, err := io.ReadFull(s.Options.Rand, body.Password[:]); err != nil {
		s.Log.Error("no random bytes for a session password", "err", err)
		return ends.Unknown
	}
	if c.readOnly {
		return c.openReadOnly(&body)
	}
	req.Body = body.Append(nil)
	c.shared.countServers(c.replica)
	s.connecting <- struct{}{} // waits until fewer connections wait for the outcomes of their connect requests
	defer func() { <-s.connecting }()
	if !c.out.IsOpen() {
		return ends.Else
	}
	if req.Op == state.OpCreateSession {
		if problem := c.mayCreate(); problem != "" {
			s.Counts.RefusedNew.Add(1)
			s.refused(c, "session refused", problem)
			c.reader.said = true
			return ends.Sessions
		}
	}
	if !c.propose(outbox.Pending{Xid: -1, Op: req.Op, At: c.reader.arrived}, req) || !c.out.Await(0, 0) {
		return ends.Else
	}
	return ends.None
}

// mayCreate reserves a place for a session that this connection will create, or says which limit forbids the
// session. Sessions that other servers create at the same moment can exceed the limit, as they are not seen
// here yet.
func (c *Conn) mayCreate() (problem string) {
	s := c.shared
	c.replica.View(func(st *state.State) {
		all := st.Sessions().Len() + int(s.creating.Load())
		of := st.Sessions().Of(c.from.Host) + int(c.from.creating.Load())
		switch most := s.Options.MaxSessions; {
		case most > 0 && all >= most:
			problem = "too many sessions"
		case s.Shares.Bound() && s.Options.MaxAddrSessions > 0 && of >= s.Options.MaxAddrSessions:
			problem = "too many sessions from this address"
		default:
			c.countCreating(1)
		}
	})
	return problem
}

// countCreating adds n to the number of sessions that are being created and are not in the state yet.
func (c *Conn) countCreating(n int64) {
	c.shared.creating.Add(n)
	c.from.creating.Add(n)
}

// openReadOnly opens a session while this server knows no leader. A known session may continue to read, but
// reads do not keep it alive at a leader. A new session exists only at this server, and ends with its
// connection.
func (c *Conn) openReadOnly(body *state.SessionBody) ends.Reason {
	s := session.Session{ID: c.asked, Timeout: body.Timeout, Password: body.Password}
	if s.ID == 0 {
		var random [8]byte
		if _, err := io.ReadFull(c.shared.Options.Rand, random[:]); err != nil {
			return ends.Unknown
		}
		s.ID = int64(binary.BigEndian.Uint64(random[:])) | math.MinInt64 // negative, as no id in the log is
	}
	if !c.attached(&s) {
		return ends.Else
	}
	return ends.None
}

// knows() reports whether this server knows the session, and whether the password is the session's. Passwords
// never change, so a wrong one is wrong at every server.
func (c *Conn) knows(id int64, password [jute.PasswordSize]byte) (known, right bool) {
	c.replica.View(func(st *state.State) {
		_, known = st.Sessions().Get(id)
		right = st.Sessions().Check(id, password)
	})
	return known, right
}

// caughtUp waits until this server has applied everything that the client has seen at other servers. It waits
// for at most a third of the client's timeout, and without a leader it does not wait at all.
func (c *Conn) caughtUp(zxid int64, timeout time.Duration) bool {
	if zxid <= c.replica.Zxid() {
		return true
	}
	if c.readOnly {
		return false
	}
	ctx, cancel := context.WithTimeout(c.shared.ctx, timeout/3)
	defer cancel()
	return c.replica.WaitZxid(ctx, zxid)
}

// refuse answers the client that its session has ended, and closes the connection.
func (c *Conn) refuse() ends.Reason {
	c.out.Lock()
	defer c.out.Unlock()
	c.refusal()
	return ends.Gone
}

// refusal appends the answer that informs a client of the end of its session. The caller holds the lock of
// the outbox.
func (c *Conn) refusal() {
	if !c.out.Open() {
		return
	}
	c.shared.Counts.Refused.Add(1)
	c.out.Append(jute.AppendConnectResponse(nil, 0, 0, [jute.PasswordSize]byte{}, c.mayRead, false))
	c.out.End(ends.Gone)
	c.follow(c.reader.followed, -1, &state.Outcome{Code: jute.SessionExpired}, c.shared.Now())
}

// attached() gives the connection its session and answers the connect request. It returns false when the
// connection has ended. The goroutine that applies the log calls it and holds the state lock. So the answer
// is in the outbox before any event, and before the session can move to another connection.
func (c *Conn) attached(s *session.Session) bool {
	older, ok := c.shared.claim(c, s.ID)
	if !ok {
		return false
	}
	if older != nil && older != c {
		older.retire(ends.Moved)
	}
	c.out.Lock()
	defer c.out.Unlock()
	if !c.out.Open() {
		return false
	}
	c.gen = s.Gen
	c.timeout = time.Duration(s.Timeout) * time.Millisecond
	var b [64]byte
	c.out.Append(jute.AppendConnectResponse(b[:0], s.Timeout, s.ID, s.Password, c.mayRead, c.readOnly))
	c.phase.Store(int32(phaseOpen))
	return true
}
