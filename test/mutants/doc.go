// Package mutants tests the tests. Each file of testdata plants one bug in the server, as a small edit of one
// or two files, and names the guarantee that the simulation, or another test, must then report as broken. A
// separate build overlays the edits on the sources: nothing in the repository changes, and the product needs
// no hooks. An edit that no longer applies fails as well, so that out-of-date edits are noticed.
//
// A mutant looks like this:
//
//	What is wrong with it.
//	catches: G3|G6            what the failing test must say, a regular expression
//	run: Histories            a test of test/sim, or "package test"; default Histories
//	seeds: 1 4                the first seed and how many; default 1 6
//	short: yes                run without -mutants.all as well
//	long: 2h                  a long day of that length; default busy minutes
//	probes: no                without the probes of simulated runs, which would notice it otherwise
//	== raftfsm/state/state.go
//	-- old
//	text that stands in the file once
//	-- new
//	text in its place
//
// In addition, make mutants-random plants edits at random, from a seed: a condition is negated, a comparison
// gets another operator, a statement is removed, or an error is returned as nil. For each edit it says which
// test fails. testdata/equivalent.tsv lists the edits that no test can detect, because they change nothing.
package mutants
