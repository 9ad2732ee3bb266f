// Package jute is the ZooKeeper wire format, and the nouns that every other package uses: operation codes,
// error codes, stats, ACLs, requests and events.
//
// Decoding never copies and never panics. A [Decoder] reads a byte slice and keeps its first error, so a
// caller decodes a record field by field and checks for an error once at the end. Strings and buffers point
// into the input; a caller that keeps one longer than the input copies it. The Decoder accepts a length or a
// count only if enough bytes remain, so a false length does not make it allocate memory.
//
// Encoding appends to a caller's slice with the Append functions; [BeginFrame] begins a frame, and [EndFrame]
// fills in its length.
//
// The package knows nothing of connections, sessions or trees, and imports only the standard library.
package jute
