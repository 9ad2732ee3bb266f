// Package stock drives a server with the clients that are in use: zkCli.sh,
// kazoo, Curator, the plain Java, C, Go and JavaScript clients, unchanged as
// their distributors ship them. Nothing in it knows zlockd's insides.
//
// The tests carry the build tag stock, because they need what install.sh
// installs; README.md tells how to run them against zlockd, against a real
// ZooKeeper (which proves the tests themselves), or against servers that are
// already running.
//
// A client that is not a Go package runs as a driver program: it prints one
// line per check, and each line becomes a subtest. Mutual exclusion is judged
// from outside by a referee, a small TCP server inside the test to which every
// holder reports; connections are cut by a relay that sits between client and
// server.
package stock
