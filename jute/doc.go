// Package jute is the ZooKeeper wire format, and the nouns that every other package uses:
// operation codes, error codes, stats, ACLs, requests and events.
//
// Decoding never copies and never panics: a [Decoder] walks a byte slice with a sticky error, so a record
// decodes as a plain list of its fields and is checked once at the end. Strings and buffers point into the
// input; a caller that keeps one longer than the input copies it. The Decoder accepts a length or a count
// only if enough bytes remain, so a false length costs nothing.
//
// Encoding appends to a caller's slice with the Append functions; a frame is
// begun with [BeginFrame] and its length patched by [EndFrame].
//
// The package knows nothing of connections, sessions or trees, and imports
// only the standard library.
package jute
