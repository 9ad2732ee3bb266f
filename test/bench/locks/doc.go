// Command locks measures the locks of package client on running servers. While they run it
// checks mutual exclusion, by the fencing tokens and by counters in memory. Each of -clients
// sessions has -goroutines workers that take one of -locks, hold it for a time and release it.
//
//	go run ./test/bench/locks -clients 20 -duration 10s
//	go run ./test/bench/locks -recipe rw -read-ratio 0.5 -fault cut
//
// It reports the latency of acquiring, the handoff (from the sending of a release to the next
// grant, if a worker waited), the rate, fairness among workers (Jain's index, 1 is even), and
// the cost of an acquisition: in requests, events and bytes without heartbeats, and in
// requests as the servers count them, with heartbeats. The waiters of one session queue within
// it: a queue of N at the servers takes N+1 clients.
//
// Faults, one each -fault-every: cut breaks the connection of a client, expire silences a
// client for longer than its session timeout, kill-leader runs -kill-command by the shell. The
// exit code is 4 if two workers violated exclusion.
//
// The last two recipes are for comparison: a queue in which every waiter watches the
// directory, and go-zookeeper's own Lock.
package main
