package jute

import "testing"

// inTest is true only in programs made by go test.
var inTest = testing.Testing()

// Overwrite marks the end of a buffer's use. In tests it writes a pattern over the bytes, so that a test
// fails if a string that should have been cloned still shares these bytes. In other programs it does nothing.
func Overwrite(b []byte) {
	if inTest {
		overwrite(b)
	}
}

func overwrite(b []byte) {
	for n := copy(b, "\xfestale\xff"); n > 0 && n < len(b); n += copy(b[n:], b[:n]) {
	}
}
