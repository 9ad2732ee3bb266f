// Command bench measures zlockd against a rival, by default ZooKeeper. Both run at once on one
// machine with the same client. The command measures every point in rounds that alternate
// between them, so that noise of the machine affects both. It prints Markdown.
//
//	go run ./test/bench -quick               a few seconds a point
//	go run ./test/bench                      the real thing
//	go run ./test/bench -list                the points
//	go run ./test/bench -points lock@1,get   some points; get means all get@N and get:N
//	go run ./test/bench -nodes 3             three servers on each side
//	go run ./test/bench -b zlockd@/old/bin   two builds against each other
//
// Before the rounds of a point, each side runs the point until its rate is level, because a JVM compiles for
// a long time. Each point shows the processor time of an operation, latencies at one rate for both sides, and
// the floor: a program in C that sends the same messages, makes the same syncs and does nothing else.
//
// Both sides are durable: every write is on disk before its answer. The output lists the
// commands of both sides before the tables.
package main
