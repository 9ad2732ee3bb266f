// Package sim is a [Network] in memory that tests can cut, throttle and freeze, and a [Disk] in memory that
// loses unsynced data when its server crashes. Its own tests run whole clusters on both, in one process and
// in virtual time: real servers with real raft on real data directories, with the log, the snapshots and
// the identity in files of such a disk. Faults follow a seed. Clients with random requests record what they
// see, for package history to judge.
//
// Two things are not simulated. The first is a process that stands still as a whole while its clocks go on:
// faults freeze its network and its disk, or stop its timers, but not both at once and not its goroutines. The
// second is bolt, which keeps terms and votes in a file that it maps into memory; [Keys] stands in for it.
// Tests with real processes cover both.
//
// Reads of a server's log and snapshots go wrong for some seconds: each fails with EIO, or one bit of it is
// flipped. Only reads are harmed, not the bytes on the disk. So a server that reads its log must end, and must
// start again from the same disk. Rot that stays is for tests of packages disk and seglog, in which a server
// must refuse to start. For a timer that stops, test/sim/overlay marks each goroutine and each timer of the
// runtime with its server. While the timers of a server stand still, none of them fires, and its clock, its
// network and its disk go on. With the plain toolchain this fault has no effect.
//
// In every fourth seed (3, 7 and so on) the servers have ports for tickets. Callers over HTTP and clients
// with sessions contend there for the same locks. They renew and give tickets, send requests late or to two
// servers at once, and lose answers. The history records every answer that a contender got. Clocks jump by
// less than ten minutes, the time for which leaders remember ended tickets.
//
//	make sim HOURS=10 SEED=1000
//
// runs one hundred seeds of six simulated minutes in exact runs, each in a process of its own:
// test/sim/overlay changes copies of the runtime's files so that what the runtime leaves to chance, such as
// the order of select and of timers at one instant, follows the seed. Every run reports a sum over all
// messages, writes to disks and records of clients, in their order, and the state of the runtime at its end:
// the goroutines that ran, what was allocated, and where on the heap. Two runs of a seed are equal in all of
// this; make sim-repeat makes each run twice and compares them. If the two runs differ, the test prints a
// command. With -sim.trace FILE added, the command shows the first event that differs. Three of four
// runs choose goroutines in other orders than the scheduler would; WAYS=0 turns that off (-sim.ways). One way
// takes any goroutine that is ready. Another takes them by ranks that change at random points. In the third,
// a goroutine sometimes waits for some milliseconds where it takes or releases a lock, stores a pointer or
// uses a channel, like a thread that gets no processor.
//
// Each client is mostly one of six users. Some nodes have ACLs that forbid some users something. The history
// checker judges every refusal, every answer and every event by the ACL at its zxid.
//
// Among the faults, servers are asked for backups. The history checker compares each backup with the state at
// its zxid, which must not be older than the moment at which the backup was asked for.
//
// At the end of most runs backups are restored to the cluster, with and without the sessions of the backup,
// while a leader or a follower crashes or leadership moves. Clients must find exactly the sessions and nodes
// that docs/data.md promises.
//
// In two of three seeds messages and disks keep to a grid of half a millisecond or a whole one. Many events
// then happen at one instant, in an order that the seed chooses.
//
//	make sim-long HOURS=48
//
// runs long days: six to 24 hours for each seed. A few clients pause for minutes between bursts of requests,
// and at night for hours. Their sessions and watches last for hours, and so do the lives of servers. Times
// with many or with few faults alternate with quiet times; there are some fifty faults an hour. At the
// beginning and at the end of each quiet time all servers must serve and be equal, with few goroutines,
// connections and bytes on their disks. All other judges are the same.
//
//	make sim-shrink SEED=1007
//
// reduces a failing run to a few faults and requests with which it still fails. Faults and requests have
// numbers. What a fault or a request does depends only on its number, so any of them can be left out
// (-sim.only). PLANT=FILE plants a bug of package mutants in any of these runs. Package reached counts rare
// states; a campaign of twenty hours fails if it misses one that is common enough.
//
//	go test ./test/sim -run Histories -sim.seed 1000 -sim.hours 10
//
// makes the same runs with the plain toolchain. Then the faults and the requests of a seed repeat, but the
// order in which goroutines run does not, nor do the answers that depend on this order. So a seed may need
// several runs to fail again. With ZLOCKD_SIM_HISTORIES set to a folder, histories that show a violation are
// kept there.
package sim
