// Package stock drives a server with the clients in use: zkCli.sh, kazoo, Curator, the plain
// Java, C, Go and JavaScript clients, unchanged as their distributors ship them. It knows
// nothing of zlockd's internals.
//
// The tests carry the build tag stock, because they need the programs that install.sh
// installs. README.md tells how to run them against zlockd, against a real ZooKeeper (which
// proves the tests themselves), or against running servers.
//
// A client that is not a Go package runs as a driver program: it prints one line per check, and each line
// becomes a subtest. A referee, a small TCP server inside the test to which every holder reports, judges
// mutual exclusion from outside. A relay between client and server cuts connections.
//
// With the tag apps as well, the tests whose names begin with TestApplication run programs that keep their
// state in ZooKeeper (ClickHouse, Prometheus, collectd, TaskFlow, tooz, Patroni) on three servers, and kill
// one leader after another while they work. Each test checks what the application owes its users: no row
// missing, no job lost or done twice, one primary. A test names and skips an application that is not
// installed; with ZLTEST_REQUIRE_STOCK=1 it fails instead.
package stock
