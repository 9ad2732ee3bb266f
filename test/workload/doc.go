// Package workload drives an ensemble with random requests of many clients and records what
// each client saw, for package history to judge. It runs against real processes and inside a
// simulation.
package workload
