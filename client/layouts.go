package client

import "github.com/zlockd/zlockd/client/recipe"

// Layout says how contenders are named in a lock's directory, and so which other programs can share
// the lock.
type Layout = recipe.Layout

const (
	// LayoutCurator is shared with Apache Curator and with go-zookeeper's Lock.
	LayoutCurator = recipe.LayoutCurator
	// LayoutKazoo is shared with kazoo, the Python client.
	LayoutKazoo = recipe.LayoutKazoo
	// LayoutHost is shared with programs whose nodes are host-R-0000000001 and
	// host-W-0000000002.
	LayoutHost = recipe.LayoutHost
	// LayoutLatch is for elections shared with Curator's LeaderLatch.
	LayoutLatch = recipe.LayoutLatch
)

// The policies of a read-write lock decide the order of readers and writers.
const (
	// PolicyFair serves contenders in the order of arrival.
	PolicyFair = recipe.PolicyFair
	// PolicyReader lets readers overtake waiting writers, for a bounded time.
	PolicyReader = recipe.PolicyReader
	// PolicyWriter lets no reader in while a writer waits.
	PolicyWriter = recipe.PolicyWriter
)
