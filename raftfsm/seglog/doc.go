// Package seglog keeps a raft log in segment files: one write and one
// fdatasync for each append, whatever its size.
//
// A segment is filled with zeros before it is used, so that an append changes
// no metadata and its sync is as cheap as a sync can be. The next segment is
// made ready in the background when the current one is half full.
//
//	segment := magic 8 · base index u64 · crc32c u32 · 0 u32 · record*
//	record  := size u32 · ^size u32 · crc32c u32 · type u8 · 0 u8*3 · index u64
//	           · term u64 · batch u64 · time i64 · extensions' length u64
//	           · data · extensions
//
// All numbers are big-endian, records begin at multiples of eight, size counts
// from its own first byte, the checksum covers everything behind it, and batch
// is the index of the first record written together with this one. Files are
// named by a number that rises with every new segment; a segment supersedes
// everything from its base index on in the segments before it. Truncating the
// tail therefore means to begin a new segment, and no byte once written is
// ever changed.
//
// Recovery tells a write torn by a crash from damage. A torn write was never
// acknowledged and is dropped. It leaves sectors of zeros, because the space
// was zero before, and nothing of a later batch behind it. A record whose
// sectors are all there but whose checksum is wrong, or that is followed by a
// later batch, was damaged after it was acknowledged: Open refuses. (The one
// case the two cannot be told apart is damage to the very last record when its
// data hold a whole sector of zeros.)
//
// Nothing is repaired and nothing is passed over. The first failed write or
// sync must end the process; the caller sees to that.
package seglog
