// Package admin is what operators see of a zlockd server: four-letter words
// on the client port, commands and metrics over HTTP.
//
// This package renders one plain [Status] value, which the server behind the [Source] interface
// gathers for each request. The package holds no pointer into the server, takes none of its locks
// and knows neither tree nor raft; tests render hand-made values.
//
// Formats follow ZooKeeper 3.8 byte for byte where programs parse them: the words, the JSON of
// /commands, the names of mntr and /metrics. A name without a meaning here exists all the same
// and stays zero.
//
// [Metrics] is the other half: the counters a server keeps while it works,
// made so that counting costs a few atomic additions.
package admin
