// Package seglog keeps a raft log in segment files: one write and one
// fdatasync for each append, whatever its size.
//
// The log fills a segment with zeros before it uses it. So an append changes no metadata of the file, and its
// sync is as cheap as possible. The log prepares the next segment in the background when the current one is
// half full.
//
//	segment := magic 8 · base index u64 · crc32c u32 · file's size u32 · record* · zeros
//	           · secret u64 · ^secret u64
//	record  := size u32 · ^size u32 · crc32c u32 · type u8 · empty u12 · empty u12 · index u64
//	           · term u64 · batch u64 · secret u64 · extensions' length u64
//	           · data · extensions
//
// All numbers are big-endian, records begin at multiples of eight, size counts
// from its own first byte, the checksum covers everything after it, empty counts the
// sectors of the record that hold zeros alone, and batch is the index of the first
// record written together with this one. Files are
// named by a number that rises with every new segment; a segment supersedes
// everything from its base index on in the segments before it.
//
// The secret is a random number that no client sees. A client can put bytes that look like a record into its
// data, but not with the segment's secret. So when the log searches a batch that a crash has torn, it can
// distinguish its own records from a client's bytes. Release 0.1.0 wrote segments without a secret, with the
// time of the append in its place; the records of such a segment may reach up to its end. That release reads
// segments with a secret, and clears the secret before it appends to one. This release appends nothing to a
// segment without a secret: it begins another.
//
// The rule of truncation: bytes after the end of the tail never become entries again. Every
// truncation begins a new segment, durably, before it removes anything, and no byte once written
// is ever changed. So the new segment supersedes all bytes of older segments from the cut on for
// as long as those segments exist. The head is cut oldest first, each removal durable before the
// next, so that no segment outlives the one that supersedes a part of it.
//
// Recovery distinguishes a write torn by a crash from damage. A torn write was never acknowledged and is
// dropped. It leaves more sectors of zeros than the record counts, because the space was zero before, and no
// later batch with the segment's secret follows it. Open refuses the log if an acknowledged record is
// damaged: all its sectors are there but its checksum is wrong, or a later batch follows it, or its term is
// older than that of the entry before it. (There is one case that recovery cannot distinguish: damage to the
// very last record when 2 MiB of its data are zeros.)
//
// Open syncs the entries that it finds, because its caller relies on them. A process that was killed between
// a write and its sync leaves entries that are readable but not durable. Open also drops the system's cache
// of the newest segment: after a failed sync the cache holds bytes that are not on the disk, and no later
// sync would report an error.
//
// StoreLogs returns when its entries are durable. Append only queues entries, and a goroutine writes them.
// They can be read at once; Durable and Wait show the progress of the writes. Every other change of the log
// waits for the queue.
//
// The log repairs nothing and skips nothing. The caller must end the process at the first failed write or
// sync.
package seglog
