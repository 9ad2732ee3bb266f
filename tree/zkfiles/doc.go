// Package zkfiles reads and writes the files of a ZooKeeper: snapshots and
// transaction logs of version 2, as ZooKeeper 3.4 to 3.9 keep them.
//
//	snapshot := "ZKSN" · version i32 · dbid i64
//	            · sessions i32 · (id i64 · timeout i32)*
//	            · ACLs i32 · (number i64 · list)*
//	            · (path · data · ACL number · stat)* · "/"
//	            · seal · [zxid i64 · digest version i32 · digest i64 · seal · [zxid i64 · seal]]
//	seal     := Adler-32 of everything before it, i64 · "/"
//	log      := "ZKLG" · version i32 · dbid i64 · entry* · zeros
//	entry    := Adler-32 of the record i64 · length i32 · record · 'B'
//	record   := session i64 · cxid i32 · zxid i64 · time i64 · type i32 · body
//	            · [digest version i32 · digest i64]
//
// in the encoding of package jute. ZooKeeper writes a snapshot while requests change the tree, so the
// snapshot may hold only some of the changes after its zxid. The log from that zxid on completes it. [Tree]
// applies a log as ZooKeeper does: it ignores a change that the tree already has.
//
// The package is pure: it works on readers and writers and knows neither files nor directories. It checks
// everything that it reads: a file that is not a snapshot or a log yields a [FormatError] with an offset,
// never a panic.
package zkfiles
