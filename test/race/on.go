//go:build race

package race

// Enabled tells that the race detector looks on.
const Enabled = true
