// Package apps runs whole applications that keep their state in ZooKeeper
// (ClickHouse, Prometheus, collectd, TaskFlow, tooz, Patroni), as Debian ships
// them, on three zlockd servers, and kills one leader after another while they
// work. Each test says what the application owes its users and looks whether
// it was kept: no row missing, no job lost or done twice, one primary.
//
// The tests carry the build tag stock, because they need what install.sh
// installs. An application that is not installed is skipped and named, or
// fails when ZLOCKD_REQUIRE_STOCK=1 says that nothing may be skipped.
package apps
