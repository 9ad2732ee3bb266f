// Package workload drives an ensemble with random requests of many clients and
// records what each of them saw, for package history to judge. It runs
// against real processes and inside a simulation alike.
package workload
