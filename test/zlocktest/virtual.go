package zlocktest

import (
	"testing"
	"testing/synctest"
)

// Virtual runs a test with a server in virtual time: when all goroutines wait, the clock jumps
// to the next event. Everything that the test starts must end with it, and the test must not
// use the network.
//
//	func TestLeaseRunsOut(t *testing.T) {
//		zlocktest.Virtual(t, func(t *testing.T, s *zlocktest.Server) {
//			link := s.Link()
//			conn := link.Connect()
//			…
//			link.Cut()
//			time.Sleep(15 * time.Second) // takes no time
//			…
//		})
//	}
func Virtual(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, Config{InMemory: true}.Start(t))
	})
}
