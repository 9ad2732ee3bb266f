// Package examples tests the examples of this directory, such as actions for CI systems and a module for
// Python.
package examples
