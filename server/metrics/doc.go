// Package metrics counts what a server does: counters, distributions, sizes, and the [Set] of them that a
// server keeps while it works.
//
// Counting an event costs only a few atomic additions. The package does not know who reads the values:
// package admin shows them under the names that the tags of the Set give.
package metrics
