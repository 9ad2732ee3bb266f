// Package admin answers the requests of operators: four-letter words on the client port, and commands and
// metrics over HTTP.
//
// It makes each answer from one [report.Status], a plain value. The server behind the [Source] interface
// gathers that value for the request. The package has no pointer into the server, takes none of its locks,
// and knows neither the tree nor raft. So tests can make a Status by hand.
//
// What programs parse is as in ZooKeeper 3.8, byte for byte: the four-letter words, the JSON of /commands,
// and the names of mntr and /metrics. Names that have no meaning in zlockd exist, too, with the value zero.
package admin
