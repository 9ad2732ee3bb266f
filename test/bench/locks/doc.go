// Command locks measures the locks of package client on running servers. While it measures, it
// checks mutual exclusion, by the fencing tokens and by counters in memory. Each of -clients
// sessions has -goroutines workers that take one of -locks, hold it for a time and release it.
//
//	go run ./test/bench/locks -clients 20 -duration 10s
//	go run ./test/bench/locks -recipe rw -read-ratio 0.5 -fault cut
//
// It reports the latency of acquiring, the handoff (from the sending of a release to the next
// grant, if a worker waited), the rate, fairness among workers (Jain's index, 1 is even), and
// the cost of an acquisition: in requests, events and bytes without heartbeats, and in
// requests as the servers count them, with heartbeats. The waiters of one session queue in the
// client, so a queue of N waiters at the servers needs N+1 clients.
//
// The command injects one fault each -fault-every: `cut` breaks the connection of a client, `expire` silences
// a client for longer than its session timeout, and `kill-leader` runs -kill-command in a shell. The exit
// code is 4 if two workers violated exclusion.
//
// The last two recipes are for comparison: a queue in which every waiter watches the
// directory, and go-zookeeper's own Lock.
//
// With the argument `compare`, the command measures the recipes of several client libraries side by side on
// one server: package client's mutex, go-zookeeper's Lock, Curator's InterProcessMutex, kazoo's Lock, and for
// contrast the queue in which every waiter watches the directory. It prints Markdown.
//
//	go run ./test/bench/locks compare                      the real thing, some minutes
//	go run ./test/bench/locks compare -quick               a smoke test
//	go run ./test/bench/locks compare -server zookeeper    on ZooKeeper instead of zlockd
//	go run ./test/bench/locks compare -libraries zlock,curator -waiters 0,10
//
// A point is a number of waiters W: W+1 sessions of one process contend for one lock without a
// pause, so that W of them always wait; W = 0 is the uncontended cycle of lock and unlock. The
// hand-off is the time from the call that releases until the next holder knows that it holds,
// both by the clock of that process. The server counts the requests.
//
// The Java and Python programs, LockBench.java and lockbench.py, need Debian's packages
// (test/stock/install.sh). The command leaves out a missing library, and the output says so.
package main
