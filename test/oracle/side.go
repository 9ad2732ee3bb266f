package oracle

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// side is one of the two servers, and what this run knows of it.
type side struct {
	addrs    []string                // the addresses of all servers of an ensemble
	members  bool                    // /zookeeper/config may hold a list of members
	patience time.Duration           // the longest wait for one frame
	conns    map[string]*conn        // live connections, by name
	sessions map[string]wire.Session // the last session of each connection name, even after the connection's end
	all      map[int64]wire.Session  // every session of this run
	ids      map[int64]string        // by session id: the session's name, which is the same on both servers
	commits  []int64                 // the zxid at the start of the run, then the zxids of the changes
	high     int64                   // the highest zxid that a reply may show so far
	times    map[int64]int64         // by zxid: the time of its change
	counters map[string]jute.Stat    // Stats of the built-in nodes at the start of the run
}

// conn is a connection with the requests that wait for a reply.
type conn struct {
	*wire.Conn
	pending []due
}

// due is an expected reply.
type due struct {
	step *Step
	xid  int32
}

// got is a frame that arrived, or the end of the connection.
type got struct {
	frame wire.Frame
	end   error // set at the end of the connection
	step  *Step // the request that the frame answers
	late  bool  // this reply came without a request
}

func newSide(addrs []string, patience time.Duration) *side {
	return &side{
		addrs: addrs, patience: patience, conns: map[string]*conn{}, sessions: map[string]wire.Session{},
		all: map[int64]wire.Session{}, ids: map[int64]string{}, times: map[int64]int64{},
		counters: map[string]jute.Stat{},
	}
}

// addr() returns the server that a connection goes to. The connections of an ensemble are spread over its
// servers.
func (s *side) addr(name string) string { return s.addrs[int(name[0])%len(s.addrs)] }

// zxid() returns the zxid that a step asks for in its field Back.
func (s *side) zxid(back int) int64 {
	switch {
	case back == -1:
		return s.commits[len(s.commits)-1] + 1e6
	case back < 0 || back >= len(s.commits):
		return 0
	}
	return s.commits[len(s.commits)-1-back]
}

// send() writes steps to a connection in one piece.
func (s *side) send(name string, steps []*Step) {
	c := s.conns[name]
	if c == nil {
		return
	}
	var b []byte
	for _, st := range steps {
		if st.Op == "raw" {
			b = append(b, st.Data...)
			continue
		}
		xid := int32(len(c.pending)) + 1
		if st.Xid != 0 {
			xid = st.Xid
		}
		sent := xid
		switch st.code() {
		case jute.OpPing:
			xid = jute.XidPing // the reply has this xid, whatever xid the step sends
			if st.Xid == 0 {
				sent = xid
			}
		case jute.OpAuth:
			if st.Xid == 0 {
				xid, sent = jute.XidAuth, jute.XidAuth
			}
		}
		c.pending = append(c.pending, due{st, xid})
		b = wire.AppendRequest(b, sent, st.code(), st.encode(s.zxid))
	}
	// Ignore an error of the write: the server may close the connection during it. The comparison covers what
	// arrives.
	c.WriteRaw(b)
}

// next() waits for one frame of a connection, or for the end of the connection.
func (s *side) next(name string) got {
	c := s.conns[name]
	f, err := c.Next()
	if err != nil {
		c.Close()
		delete(s.conns, name)
		if errors.Is(err, io.EOF) {
			err = io.EOF
		}
		return got{end: err}
	}
	g := got{frame: f}
	if f.Event == nil {
		if len(c.pending) == 0 {
			g.late = true
			return g
		}
		g.step = c.pending[0].step
		g.late = f.Xid != c.pending[0].xid
		c.pending = c.pending[1:]
	}
	return g
}

// collect() waits until a connection has no request pending, or ends.
func (s *side) collect(name string) []got {
	var list []got
	for {
		c := s.conns[name]
		if c == nil || len(c.pending) == 0 {
			return list
		}
		if g := s.next(name); g.step != catchUp {
			list = append(list, g)
		}
	}
}

// drain() waits for the end of a connection.
func (s *side) drain(name string) []got {
	var list []got
	for s.conns[name] != nil {
		list = append(list, s.next(name))
	}
	return list
}

// ping is sent on every connection after a step. Its reply marks the end of what the step caused, because the
// events of earlier changes come before that reply.
var ping = &Step{Op: "ping"}

// catchUp is sent before ping in an ensemble, so that the connection's server knows the change, too.
var catchUp = &Step{Op: "sync", Path: "/"}

// names() returns the live connections in order.
func (s *side) names() []string { return slices.Sorted(maps.Keys(s.conns)) }

// open() performs the handshake of a connect or attach step. If the server grants no session, `outcome` says
// how it refused.
func (s *side) open(st *Step) (granted *wire.Session, outcome string, err error) {
	req := jute.ConnectRequest{Timeout: st.Timeout, HasReadOnly: !st.Old,
		Password: make([]byte, jute.PasswordSize)}
	if st.Back != -2 {
		req.LastZxidSeen = s.zxid(st.Back)
	}
	if st.Op == "attach" {
		old := s.sessions[st.Session]
		req.SessionID, req.Password = old.ID, slices.Clone(old.Password)
	}
	switch st.Password {
	case "null":
		req.Password = nil
	case "empty":
		req.Password = []byte{}
	case "short":
		req.Password = req.Password[:7]
	case "wrong":
		req.Password[3] ^= 1
	}
	req.ReadOnly = st.ReadOnly
	body := st.damaged(wire.AppendConnectRequest(nil, req)[4:])
	damaged, bad := jute.DecodeConnectRequest(body)
	wc, err := wire.Dial(s.addr(st.Conn))
	if err != nil {
		return nil, "", err
	}
	wc.Timeout = s.patience
	switch err := wc.ConnectRaw(jute.AppendBuffer(nil, body)); {
	case err == io.EOF:
		wc.Close()
		return nil, "closed", nil
	case errors.Is(err, wire.ErrRefused):
		defer wc.Close()
		return nil, "refused", wc.Closed()
	case err != nil:
		wc.Close()
		return nil, "", err
	}
	got := wc.Session
	if bad != nil {
		return nil, "", fmt.Errorf("granted, though the request is none: %x", body)
	}
	if st.Op == "attach" && (got.ID != req.SessionID || !slices.Equal(got.Password, req.Password)) {
		return nil, "", fmt.Errorf("attached session %x came back as %x", req.SessionID, got.ID)
	}
	if got.HasReadOnly != damaged.HasReadOnly {
		return nil, "", fmt.Errorf("read-only byte in the response: %v, in the request: %v", got.HasReadOnly,
			damaged.HasReadOnly)
	}
	s.conns[st.Conn] = &conn{Conn: wc}
	s.sessions[st.Conn] = got
	s.all[got.ID] = got
	return &got, fmt.Sprintf("granted timeout=%d readOnly=%v", got.Timeout, got.ReadOnly), nil
}
