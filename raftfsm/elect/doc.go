// Package elect makes a server stand for election sooner than raft would by itself, and makes a leader whose
// disk hangs hand over.
//
// Raft's own timers still apply, so a mistake here costs an election, never a guarantee. A server stands
//
//   - when the leader's process is gone, which its refused connections show
//     ([Elections.Succeed]);
//   - when a majority of the voters hears nothing of the leader (silence);
//   - when a majority knows no leader, because the cluster starts or an election has failed (vacancy).
//
// In each case the server asks the others first, and [Survey.Decide], which is pure, says whether
// it stands, waits for a server that stands first, or yields.
package elect
