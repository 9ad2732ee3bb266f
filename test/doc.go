// Package test holds the tests of the product as a whole, and what other tests need. Its own tests compare
// the imports of all packages, the guarantees and the manifests with the documentation.
//
//   - expect and must: comparisons; a failure of must ends the test
//   - script: tests that are texts: commands, and what they print
//   - wire: a client for the protocol's bytes; faultproxy: a proxy that loses, delays and answers frames
//   - cluster: servers as processes, zlockd's and ZooKeeper's; zlocktest: a server inside a test, for users
//   - sim: a network and a disk in memory; its tests run whole clusters on them
//   - history: judges runs by what clients saw; oracle: zlockd beside a ZooKeeper; golden: recorded exchanges
//   - proc: processes under faults; stock: other libraries, tools and applications; abuse: hostile clients
//   - mutants: planted bugs, and the tests that notice them; bench: figures
package test
