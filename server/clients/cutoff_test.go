package clients

import (
	"testing"

	"github.com/zlockd/zlockd/test/wire"
)

// A server that is cut off serves no client, and health checks hear so at once.
func TestServerThatIsCutOffServesNobody(t *testing.T) {
	r := newRig(t, Options{})
	c := r.dial()
	must(t, c.Connect(wire.NewSession(4000)))
	alive(t, c)
	if !r.srv.Figures().Serving {
		t.Fatal("it does not serve")
	}
	r.srv.CutOff()
	if r.srv.Figures().Serving {
		t.Error("it says that it serves")
	}
	must(t, c.Closed())
}
