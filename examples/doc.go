// Package examples holds parts for other programs, and the tests that run them.
package examples
