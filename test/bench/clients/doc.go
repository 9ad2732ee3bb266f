// Command clients measures lock recipes of several client libraries side by
// side on one server: package client's mutex, go-zookeeper's Lock, Curator's
// InterProcessMutex, kazoo's Lock, and for contrast a queue in which every
// waiter watches the directory. It prints Markdown.
//
//	go run ./test/bench/clients                      the real thing, some minutes
//	go run ./test/bench/clients -quick               a smoke test
//	go run ./test/bench/clients -server zookeeper    on ZooKeeper instead of zlockd
//	go run ./test/bench/clients -libraries zlock,curator -waiters 0,10
//
// A point is a number of waiters W: W+1 sessions of one process contend for one lock without a
// pause, so that W of them always wait; W = 0 is the uncontended cycle of lock and unlock. The
// hand-off is the time from the call that releases until the next holder knows that it holds,
// both by the clock of that process. The server counts the requests.
//
// The Java and Python programs, LockBench.java and lockbench.py, need Debian's packages
// (test/stock/install.sh). The command leaves out a missing library, and the output says so.
package main
