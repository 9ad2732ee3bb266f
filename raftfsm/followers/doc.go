// Package followers keeps what the leader of one term knows about the other servers: the blocks that their
// links deliver, how far they have applied the log, and which commits they have been told of.
//
// The goroutine that reads a connection fills its [Link], and the batcher empties the Link, both under the
// lock of its [Links]. [News] has a goroutine for each follower; the fields of News that only the batcher
// uses need no lock. [Stored] outlives the terms, because answers of followers arrive from raft's transport
// at any time.
package followers
