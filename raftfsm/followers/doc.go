// Package followers is the other servers as the leader of one term sees them: the blocks that their links
// bring in, how far they say they are, and the news of commits that go out to them.
//
// A [Link] is filled by the goroutine that reads its connection and emptied by the batcher, under the lock of
// its [Links]. [News] has a goroutine for each follower; what only the batcher uses of it needs no lock.
// [Stored] outlives the terms: answers of followers come in from raft's transport at any time.
package followers
