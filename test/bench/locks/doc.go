// Command locks measures the locks of package client on running servers, and
// checks while they run that they exclude, by the fencing tokens and by counters in
// memory. Each of -clients sessions has -goroutines workers that take one of
// -locks, hold it for a time and give it back.
//
//	go run ./test/bench/locks -clients 20 -duration 10s
//	go run ./test/bench/locks -recipe rw -read-ratio 0.5 -fault cut
//
// What is told: latency of acquiring, handoff (from a release being sent to
// the next grant, where somebody waited), rate, fairness among workers (Jain's
// index, 1 is even), and what an acquisition costs in requests, events and
// bytes, heartbeats not counted, and in requests as the servers count them,
// heartbeats and all. The waiters of one session queue within it: a queue of N
// at the servers takes N+1 clients.
//
// Faults, one each -fault-every: cut breaks the connection of a client, expire
// leaves one without a word for longer than its session timeout, kill-leader
// runs -kill-command by the shell. The exit code is 4 if exclusion was violated.
//
// The last two recipes are there for comparison: a queue in which every waiter
// watches the directory, and go-zookeeper's own Lock.
package main
