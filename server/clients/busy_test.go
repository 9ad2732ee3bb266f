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
	if n := r.srv.GoneClients()["127.0.0.1"]; n.Requests < connections || n.Bytes < 100*connections {
		t.Errorf("%+v of %d connections", n, connections)
	}
}

// The sample is drawn: clients in step are counted as all others are.
func TestPathsAreCountedAtRandom(t *testing.T) {
	r := newRig(t, Options{})
	const each = busyEvery * 100
	body := wire.PathWatch("/a", false)
	other := wire.PathWatch("/b", false)
	for i := range each {
		// As a client asks that names /b in every sixteenth request.
		r.srv.observed(jute.OpGetData, body)
		if i%(busyEvery-1) == 0 {
			r.srv.observed(jute.OpGetData, other)
		}
	}
	r.srv.observed(jute.OpPing, nil)
	r.srv.observed(jute.OpGetData, []byte{0, 0, 1})
	counts, _ := r.srv.BusyPaths()
	a, b := counts["/a"], counts["/b"]
	if a.Requests < each/3 || a.Requests > 3*each || b.Requests > each/2 || len(counts) > 2 {
		t.Errorf("%d requests named /a and %d /b, by a sample of %d and %d", a.Requests, b.Requests, each, each/(busyEvery-1))
	}
}
