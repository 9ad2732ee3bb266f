package clients

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

func TestReconfigAsksTheHookAndSaysWhoAsks(t *testing.T) {
	var asked []ReconfigRequest
	r := newRig(t, Options{
		SuperDigest: tree.DigestID("root:secret").ID,
		Reconfigure: func(q ReconfigRequest) (jute.ErrCode, bool) {
			asked = append(asked, q)
			switch q.Version {
			case 5:
				return jute.BadVersion, true
			case 6:
				return 0, false
			}
			return jute.OK, true
		},
	})
	c := r.client()
	body := func(version int64) wire.Body { return wire.Body{}.Str("server.2=x").Null().Null().Long(version) }
	call(t, c, jute.BadVersion, jute.OpReconfig, body(5))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "root:secret"))
	f := call(t, c, jute.OK, jute.OpReconfig, body(-1))
	d := jute.NewDecoder(f.Body)
	d.Buffer()
	d.Stat()
	expect.That(t, d.Err() == nil && len(d.Rest()) == 0, "reply %x", f.Body)
	call(t, c, jute.MarshallingError, jute.OpReconfig, wire.Body{}.Str("x"))
	if len(asked) != 2 || asked[0].May || !asked[1].May || asked[1].Joining != "server.2=x" ||
		asked[1].Patience <= 0 {
		t.Errorf("asked %+v", asked)
	}
	// An outcome that is not known is not invented.
	_, err := c.Send(jute.OpReconfig, body(6))
	must.OK(t, err)
	must.OK(t, c.Closed())
}
