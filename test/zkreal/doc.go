// Package zkreal runs the real ZooKeeper that Debian ships, as the yardstick
// other tests measure zlockd with.
//
// A test asks for a server with [Start] or a cluster with [StartEnsemble] and
// gets it on loopback ports of its own with a data directory of its own; both
// are gone when the test ends. Programs that are not tests use [Launch].
//
// Without the build tag stock, tests skip: none of `make test` may depend on what
// else is installed. Where Java or ZooKeeper are missing, they say which package to
// install. A machine that must not skip (CI=true, or ZLOCKD_REQUIRE_STOCK=1)
// fails instead: a comparison that silently never runs proves nothing.
package zkreal
