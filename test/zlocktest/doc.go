// Package zlocktest gives tests of Go programs a zlockd of their own.
//
//	func TestWorker(t *testing.T) {
//		s := zlocktest.Start(t)
//		conn := s.Connect()
//		…
//	}
//
// The server runs in the test's process and in memory, is ready within
// milliseconds, and is gone when the test ends. What is hard to bring about
// with a real server is one call here: [Server.KillSession] ends a session the
// way a timeout does, [Server.Disconnect] breaks every connection,
// [Server.Restart] takes the server away and brings it back with all it knew.
//
// [Virtual] runs a test in virtual time: a session that takes 30 seconds to
// expire does so at once, and a test of time limits takes no time itself.
package zlocktest
