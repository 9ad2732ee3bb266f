// Package test holds the tests of the product as a whole: stock clients, a real ZooKeeper
// beside zlockd, recorded exchanges, simulation and faults. Its own test compares the imports
// of all packages with the architecture.
package test
