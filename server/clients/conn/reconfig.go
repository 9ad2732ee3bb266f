package conn

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/tree/acl"
)

// If the options allow it, reconfig changes the members for a client that may write /zookeeper/config.
func (c *Conn) reconfig(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	var r options.ReconfigRequest
	for _, field := range []*string{&r.Joining, &r.Leaving, &r.Members} {
		s, _ := d.String()
		*field = strings.Clone(s)
	}
	r.Version = d.Long()
	code, known := jute.OK, true
	switch {
	case d.Err() != nil:
		code = jute.MarshallingError
	case c.shared.Options.Reconfigure == nil:
		code = jute.ReconfigDisabled
	default:
		if !c.afford(request.ReconfigSteps) {
			return false
		}
		r.May, r.Patience = c.mayReconfigure(), c.timeout/3
		c.out.Flush()
		o := &c.out
		o.Lock()
		// A pending request keeps the session alive while the client waits for its answer.
		o.Push(outbox.Pending{Xid: xid, Op: jute.OpReconfig})
		o.Unlock()
		code, known = c.shared.Options.Reconfigure(r)
		o.Lock()
		o.Pop()
		o.Unlock()
	}
	if !known {
		c.out.Close(ends.Unknown)
		c.follow(c.reader.followed, xid, &state.Outcome{Unknown: true}, c.shared.Now())
		return false
	}
	var record []byte
	zxid := c.replica.Zxid()
	if code == jute.OK {
		c.replica.View(func(st *state.State) {
			zxid = st.Zxid()
			record, code = st.Tree().AppendData(nil, acl.Super, config.Path)
		})
	}
	return c.reply(xid, jute.OpReconfig, zxid, code, record)
}

func (c *Conn) mayReconfigure() (may bool) {
	c.replica.View(func(st *state.State) {
		info, ok := st.Tree().Get(config.Path)
		may = ok && acl.New(info.ACL).Allows(*c.proof.IDs.Load(), jute.PermWrite)
	})
	return may
}
