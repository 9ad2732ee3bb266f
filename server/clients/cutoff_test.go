package clients

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A server that is cut off serves no client, and health checks hear so at once.
func TestServerThatIsCutOffServesNobody(t *testing.T) {
	r := newRig(t, Options{})
	c := r.dial()
	must.OK(t, c.Connect(wire.NewSession(4000)))
	alive(t, c)
	must.That(t, r.srv.Figures().Serving, "it does not serve")
	r.srv.CutOff()
	expect.That(t, !r.srv.Figures().Serving, "it says that it serves")
	must.OK(t, c.Closed())
}
