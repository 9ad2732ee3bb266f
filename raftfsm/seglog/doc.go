// Package seglog keeps a raft log in segment files: one write and one fdatasync for each append, whatever its
// size.
//
// The log fills a segment with zeros before it uses the segment. So an append changes no metadata of the
// file, and the sync of an append is as cheap as possible. The log prepares the next segment in the
// background when the current one is half full.
//
//	segment := magic 8 · base index u64 · crc32c u32 · file's size u32 · record* · zeros
//	 · secret u64 · ^secret u64
//	record := size u32 · ^size u32 · crc32c u32 · type u8 · empty u12 · empty u12 · index u64
//	 · term u64 · batch u64 · secret u64 · extensions' length u64
//	 · data · extensions
//
// All numbers are big-endian, and records begin at multiples of eight. `size` is the length of the whole
// record; the checksum covers all bytes after the checksum. `empty` is how many sectors of the record contain
// only zeros. `batch` is the index of the first record written together with this record. The name of a file
// is a number that rises with every new segment. A segment supersedes the entries from its base index on in
// all earlier segments.
//
// The secret is a random number that no client sees. A client can put bytes that look like a record into its
// data, but cannot put the segment's secret into them. So when the log searches the bytes after a torn
// record, it can distinguish its own records from a client's bytes. Release 0.1.0 wrote segments without a
// secret, and put the time of the append in its place; the records of such a segment may reach up to its end.
// That release can read a segment with a secret, and clears the secret before it appends to the segment.
// Later releases append nothing to a segment without a secret; they begin a new segment.
//
// The rule of truncation: bytes after the end of the tail never become entries again. Every truncation begins
// a new segment, durably, before it removes anything, and no written byte is ever changed. So the new segment
// supersedes all bytes after the cut in older segments for as long as those segments exist. At the head, the
// oldest segment is removed first, and each removal is durable before the next. So no segment outlives the
// segment that supersedes a part of it.
//
// Recovery distinguishes a write torn by a crash from damage. A torn write was never acknowledged, so
// recovery drops it. A record is torn if it has more sectors of zeros than it counts (the space was zero
// before), and no later batch with the segment's secret follows it. Open refuses the log if an acknowledged
// record is damaged: all its sectors are there but its checksum is wrong, or a later batch follows it, or its
// term is older than that of the entry before it. (Recovery fails to recognize damage in one case: in the
// very last record, if 2 MiB of its data are zeros.)
//
// Open syncs the entries that it finds, because its caller relies on them. A process that was killed between
// a write and its sync leaves entries that are readable but not durable. Open also drops the system's cache
// of the newest segment: after a failed sync the cache holds bytes that are not on the disk, and no later
// sync would report an error.
//
// StoreLogs returns when its entries are durable. Append only queues entries, and a goroutine writes them.
// Queued entries can be read at once; Durable and Wait show which entries are written. Every other change of
// the log waits for the queue.
//
// The log repairs nothing and skips nothing. The caller must end the process at the first failed write or
// sync.
package seglog
