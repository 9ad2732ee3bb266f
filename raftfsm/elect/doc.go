// Package elect makes a server stand for election sooner than raft would by itself, and makes a leader give
// up its leadership while its disk hangs.
//
// Raft's own timers still apply, so a mistake in this package costs an election, but breaks no guarantee. A
// server stands for election
//
//   - when the leader's process is gone, which its refused connections show ([Elections.Succeed]);
//   - when a majority of the voters does not hear from the leader (silence);
//   - when a majority knows no leader, because the cluster starts or an election has failed (vacancy).
//
// In each case the server asks the others first, and the pure function [Survey.Decide] says whether it
// stands, waits for a better candidate to stand first, or yields.
package elect
