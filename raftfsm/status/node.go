package status

import "time"

// Node is a server's part in its cluster at one moment.
type Node struct {
	ID       uint32
	Cluster  string
	Serving  bool
	Reason   string // why this server does not serve clients
	ReadOnly bool   // whether clients that ask for it may read although there is no leader
	// why this server, as leader, refuses requests that need more room; empty: it does not refuse them
	Full string
	// LayoutWaits says why Options.OneLayout has no effect yet; empty: it has an effect, or is off.
	LayoutWaits string
	Role        string // standalone, leader or follower; empty before it has a role
	Leader      uint32 // id of the leader; 0: none known
	Term        uint64
	Commit      uint64 // index of the last log entry that is known here to be committed
	Applied     uint64 // index of the last log entry applied here
	Last        uint64 // index of the last log entry stored here
	Zxid        int64

	Snapshot Snapshot

	Members []Member // sorted by id; the Progress of each has only Applied, and only if this server leads

	Leads        time.Duration // how long this server has led; 0: it does not lead
	Elections    int64         // how many elections this server has won
	Pending      int           // how many requests of this server are not applied yet
	LogBehind    int64         // how many requests came since the last snapshot
	Syncs        int64
	SyncTime     time.Duration
	SyncMax      time.Duration
	PeerInsecure bool
	Removed      bool // whether this server is no longer a member
}

// Snapshot is the newest snapshot on a server's disk.
type Snapshot struct {
	Zxid int64
	Time time.Time // zero: there is no snapshot
}
