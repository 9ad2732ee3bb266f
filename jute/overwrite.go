package jute

import "testing"

// inTest is true in the programs of go test alone.
var inTest = testing.Testing()

// Overwrite marks the end of a buffer's use. In tests it puts a pattern over the bytes, so that a string
// which still shares them, and should have been cloned, shows it; elsewhere it does nothing.
func Overwrite(b []byte) {
	if inTest {
		overwrite(b)
	}
}

func overwrite(b []byte) {
	for n := copy(b, "\xfestale\xff"); n > 0 && n < len(b); n += copy(b[n:], b[:n]) {
	}
}
