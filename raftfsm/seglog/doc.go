// Package seglog keeps a raft log in segment files: one write and one
// fdatasync for each append, whatever its size.
//
// A segment is filled with zeros before it is used, so that an append changes
// no metadata and its sync is as cheap as a sync can be. The next segment is
// made ready in the background when the current one is half full.
//
//	segment := magic 8 · base index u64 · crc32c u32 · file's size u32 · record*
//	record  := size u32 · ^size u32 · crc32c u32 · type u8 · 0 u8*3 · index u64
//	           · term u64 · batch u64 · time i64 · extensions' length u64
//	           · data · extensions
//
// All numbers are big-endian, records begin at multiples of eight, size counts
// from its own first byte, the checksum covers everything behind it, and batch
// is the index of the first record written together with this one. Files are
// named by a number that rises with every new segment; a segment supersedes
// everything from its base index on in the segments before it.
//
// The rule of truncation: bytes behind the end of the tail never become entries
// again. Every truncation begins a new segment, durably, before it removes
// anything, and no byte once written is ever changed; so whatever stands in
// older segments from the place of the cut on stays superseded by the new one
// for as long as those segments exist. The head is cut oldest first, each
// removal durable before the next, so that no segment outlives the one that
// supersedes a part of it.
//
// Recovery tells a write torn by a crash from damage. A torn write was never
// acknowledged and is dropped. It leaves sectors of zeros, because the space
// was zero before, and nothing of a later batch behind it. A record whose
// sectors are all there but whose checksum is wrong, or that is followed by a
// later batch, or whose term is older than that of the entry before it, was
// damaged after it was acknowledged: Open refuses. (The one case the two cannot
// be told apart is damage to the very last record when its data hold a whole
// sector of zeros.)
//
// What Open finds counts from then on, so Open syncs it first: a process that
// was killed between its write and its sync has left entries that are readable
// and not durable. It also forgets what the system has cached of the newest
// segment, because after a sync that failed the cache holds what the disk does
// not, and no later sync would tell.
//
// StoreLogs returns when its entries are durable. Append only queues them:
// they can be read at once, a goroutine writes them, Durable and Wait tell how
// far it is. Whatever else is done to the log waits for what is queued.
//
// Nothing is repaired and nothing is passed over. The first failed write or
// sync must end the process; the caller sees to that.
package seglog
