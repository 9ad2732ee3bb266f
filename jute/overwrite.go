package jute

import "testing"

// inTest is true only in programs of go test.
var inTest = testing.Testing()

// Overwrite marks the end of a buffer's use. In tests it writes a pattern over the bytes, so that a test
// fails if a string still shares them and should have been cloned. Elsewhere it does nothing.
func Overwrite(b []byte) {
	if inTest {
		overwrite(b)
	}
}

func overwrite(b []byte) {
	for n := copy(b, "\xfestale\xff"); n > 0 && n < len(b); n += copy(b[n:], b[:n]) {
	}
}
