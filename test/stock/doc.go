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
//
// With the tag apps as well, the tests whose names begin with TestApplication run
// programs that keep their state in ZooKeeper (ClickHouse, Prometheus, collectd,
// TaskFlow, tooz, Patroni) on three servers, and kill one leader after another
// while they work. Each says what the application owes its users: no row missing,
// no job lost or done twice, one primary. An application that is not installed is
// skipped and named, or fails when ZLTEST_REQUIRE_STOCK=1 says that nothing may be
// skipped.
package stock
