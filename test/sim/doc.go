// Package sim is a [Network] in memory that tests can cut, throttle and freeze, and a [Disk] in memory that
// loses unsynced data when its server crashes. Its own tests run whole clusters on both, in one process and
// in virtual time: real servers with real raft and the real log; substitutes keep terms, votes and
// snapshots. Faults follow a seed. Clients with random requests record what they see, for package history
// to judge.
//
// What is not simulated: a process that stands still while its clocks go on (its network and its disk can
// be frozen, its timers cannot), and the files of terms and snapshots. Both are tested with real processes.
//
//	go test ./test/sim -run Histories -sim.seed 1000 -sim.hours 10
//
// runs one hundred seeds of six simulated minutes. The schedule of a seed repeats exactly, the order in
// which goroutines run does not: a failure may need its seed several times to come back. With
// ZLOCKD_SIM_HISTORIES set to a folder, histories that show a violation are kept there.
package sim
