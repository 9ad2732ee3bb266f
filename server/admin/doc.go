// Package admin answers the requests of operators: four-letter words on the client port, and commands and
// metrics over HTTP.
//
// This package renders one plain [report.Status] value. For each request, the server behind the [Source]
// interface gathers that value. The package holds no pointer into the server, takes none of its locks, and
// uses neither the tree nor raft. Tests render hand-made values.
//
// Where programs parse a format, it is the format of ZooKeeper 3.8, byte for byte: the four-letter words, the
// JSON of /commands, the names of mntr and /metrics. A name without a meaning in zlockd exists too, and its
// value stays zero.
package admin
