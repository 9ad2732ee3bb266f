package clients

import (
	"math/rand/v2"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/observe"
)

// busyEvery: observed samples one request in so many, at random. A sample of every sixteenth
// request would be wrong if clients run in step.
const busyEvery = 16

// observed is called for each request. It counts the paths that a sample of the requests names.
func (s *Server) observed(op jute.OpCode, body []byte) {
	if rand.Uint32()%busyEvery != 0 {
		return
	}
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpExists,
		jute.OpGetData,
		jute.OpSetData, jute.OpGetACL, jute.OpSetACL, jute.OpGetChildren, jute.OpGetChildren2, jute.OpSync:
		d := jute.NewDecoder(body)
		if path, ok := d.String(); ok && d.Err() == nil {
			s.paths.Add(path, observe.Count{Requests: busyEvery}, s.now())
		}
	}
}

// BusyPaths returns how many requests named a path in the last minute or two, by a sample of one
// request in sixteen.
func (s *Server) BusyPaths() (map[string]observe.Count, time.Duration) {
	return s.paths.Counts(s.now())
}

// GoneClients returns the counts of connections that ended in the last minute or two, by address.
func (s *Server) GoneClients() map[string]observe.Count {
	counts, _ := s.gone.Counts(s.now())
	return counts
}
