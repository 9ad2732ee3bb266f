package clients

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// What a client asked for is known when its connection has ended: some connect for each
// request.
func TestClientsThatConnectForEachRequestAreCounted(t *testing.T) {
	r := newRig(t, Options{})
	const connections = 20
	for range connections {
		c := r.client()
		call(t, c, jute.OK, jute.OpExists, wire.PathWatch("/", false))
		c.Close()
	}
	eventually(t, "connections gone", func() bool { return r.srv.Figures().Conns == 0 })
	if n := r.srv.Observed.GoneClients()["127.0.0.1"]; n.Requests < connections || n.Bytes < 100*connections {
		t.Errorf("%+v of %d connections", n, connections)
	}
}
