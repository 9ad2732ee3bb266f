package client

import (
	"testing"

	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// On a server without container nodes, the client makes persistent directories after one refusal.
func TestServerWithoutContainers(t *testing.T) {
	t.Parallel()
	shared(t)
	const createContainer, unimplemented = 19, -6
	c, p := proxied(t)
	refused := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: createContainer, Do: faultproxy.Refused,
		Code: unimplemented})
	o, d := observer(t), dir(t)
	asked := 0
	for i, path := range []string{d + "/a", d + "/b/c"} {
		l := lock(t, c.Mutex(path).Lock)
		_, st := must.Get2(o.Get(path))(t)
		must.Equal(t, st.EphemeralOwner, 0, "owner of %s", path)
		unlock(t, l)
		if i == 0 { // usually one request; two if the client reconnects because a heartbeat is answered late
			asked = refused.Seen()
		}
		must.That(t, asked > 0, "no container was asked for")
		must.Equal(t, refused.Seen(), asked, "containers asked for")
	}
}
