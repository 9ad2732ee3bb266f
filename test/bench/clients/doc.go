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
// A point is a number of waiters W: W+1 sessions of one process contend for one
// lock without a pause, so that W of them wait at any time; with none it is the
// uncontended cycle of lock and unlock. The hand-off is the time from a release
// being asked for to the next holder's knowledge, both by the clock of that
// process. Requests are counted by the server.
//
// The Java and Python programs, LockBench.java and lockbench.py, need Debian's
// packages (test/stock/install.sh); a library that is missing is left out, and
// the output says so.
package main
