// Package leading is the part of a server that works while the server leads: it runs one [Term] after the
// other. A term fills the entries of the log from the streams of all servers, and has the duties of a leader.
// It ends sessions, sweeps, compares digests, refuses requests for which there is no room, and changes and
// publishes the members.
//
// A term runs in three goroutines, and in those of its links. The batcher alone fills and proposes entries;
// it holds the term's baton except while it waits for a commit. The duties queue what the leader proposes on
// its own account in the term's acts, which have a lock of their own. Only [Leader].Stored outlives a term.
//
//   - leader.go begins and ends terms; term.go has the type Term, and options.go has what a term gets from
//     the server.
//   - batch.go proposes entries, which fill.go fills from streams, links and acts.go; handoff.go lets a
//     request wait for the next owner of a lock.
//   - duties.go has the leader's other work; link.go receives what followers send.
//   - member.go changes the members, and publish.go tells clients of them; versions.go asks which releases
//     the members run, and layout.go decides when --one-layout has its effect.
package leading
