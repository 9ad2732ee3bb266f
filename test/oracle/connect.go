package oracle

import (
	"fmt"

	"github.com/zlockd/zlockd/test/wire"
)

// open() connects both servers.
func (r *Runner) open(st *Step) error {
	if r.a.conns[st.Conn] != nil || r.b.conns[st.Conn] != nil {
		if err := r.drop(&Step{Conn: st.Conn, Op: "drop"}); err != nil {
			return err
		}
	}
	holder := r.holder(st)
	if st.Op == "attach" {
		_, ok := r.a.sessions[st.Session]
		// Leave out an attach with a wrong password or a damaged request while a connection holds the session. It
		// must not affect that connection, but in ZooKeeper it does.
		if !ok || holder != "" && (st.Password != "" || st.Patch != "" || st.Cut > 0) {
			return nil
		}
	}
	r.Ops++
	grantedA, outA, err := r.a.open(st)
	if err != nil {
		return &Difference{*st, st.Conn, err.Error(), "not asked"}
	}
	grantedB, outB, err := r.b.open(st)
	if err != nil {
		return &Difference{*st, st.Conn, "", err.Error()}
	}
	if outA != outB {
		return &Difference{*st, st.Conn, outA, outB}
	}
	if grantedA == nil {
		return r.quiesce(st, nil, nil, nil)
	}
	seenA, seenB := map[string][]got{}, map[string][]got{}
	if holder != "" {
		seenA[holder], seenB[holder] = r.a.drain(holder), r.b.drain(holder)
		if err := r.compare(st, holder, seenA[holder], seenB[holder]); err != nil {
			return err
		}
	}
	if st.Op == "connect" {
		if err := r.begin(st, grantedA, grantedB); err != nil {
			return err
		}
	}
	return r.quiesce(st, nil, nil, nil)
}

// holder() returns the connection that now holds the session of an attach step.
func (r *Runner) holder(st *Step) string {
	if st.Op != "attach" {
		return ""
	}
	id := r.a.sessions[st.Session].ID
	for name := range r.a.conns {
		if r.a.sessions[name].ID == id {
			return name
		}
	}
	return ""
}

// begin() records a new session. The creation of a session is a change, and the ping that follows at once
// shows the zxid of this change.
func (r *Runner) begin(st *Step, a, b *wire.Session) error {
	r.sessions++
	name := fmt.Sprintf("S%d", r.sessions)
	for _, c := range []struct {
		s  *side
		id int64
	}{{r.a, a.ID}, {r.b, b.ID}} {
		if other := c.s.ids[c.id]; other != "" {
			return &Difference{*st, st.Conn, name, fmt.Sprintf("session id %x was %s", c.id, other)}
		}
		c.s.ids[c.id] = name
	}
	r.a.send(st.Conn, []*Step{ping})
	r.b.send(st.Conn, []*Step{ping})
	fromA, fromB := r.a.collect(st.Conn), r.b.collect(st.Conn)
	if len(fromA) != 1 || len(fromB) != 1 || fromA[0].end != nil || fromB[0].end != nil {
		return r.compare(st, st.Conn, fromA, fromB)
	}
	if err := r.change(fromA[0].frame.Zxid, fromB[0].frame.Zxid); err != nil {
		return &Difference{*st, st.Conn, "zxids of a session's creation", err.Error()}
	}
	return nil
}

// drop() ends a connection without closing its session, on both servers.
func (r *Runner) drop(st *Step) error {
	for _, s := range []*side{r.a, r.b} {
		c := s.conns[st.Conn]
		if c == nil {
			continue
		}
		delete(s.conns, st.Conn)
		if late, err := c.Drop(); err != nil || len(late) > 0 {
			return &Difference{*st, st.Conn, "end of the connection", fmt.Sprintf("%v, %v (server %s)", late, err,
				s.addr(st.Conn))}
		}
	}
	return nil
}

// restart() restarts the second server. The clients of both servers lose only their connections.
func (r *Runner) restart() error {
	if r.Restart == nil {
		return nil
	}
	for _, name := range r.a.names() {
		if _, err := r.a.conns[name].Drop(); err != nil {
			return err
		}
		delete(r.a.conns, name)
	}
	for name, c := range r.b.conns {
		c.Close()
		delete(r.b.conns, name)
	}
	return r.Restart()
}
