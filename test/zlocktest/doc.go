// Package zlocktest gives tests of Go programs a zlockd of their own.
//
//	func TestWorker(t *testing.T) {
//		s := zlocktest.Start(t)
//		conn := s.Connect()
//		…
//	}
//
// The server runs in the test's process and in memory, is ready within milliseconds, and ends
// with the test. One call does what is hard with a real server: [Server.KillSession] ends a
// session as a timeout does, [Server.Disconnect] breaks every connection, [Server.Restart]
// stops the server and starts it again with all its state.
//
// [Virtual] runs a test in virtual time: a session with a timeout of 30 seconds expires at
// once, and a test of time limits takes no time itself.
package zlocktest
