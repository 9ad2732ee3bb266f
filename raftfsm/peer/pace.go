package peer

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of a message with log entries, in bytes. Raft bounds only the number of entries, and repeats a
// message that takes longer than rpcTimeout. Without further bounds, a server that lags behind a slow link
// would never catch up.
const (
	paceMost  = 8 << 20
	paceLeast = 64 << 10 // a message may have more bytes if it has only one entry
	paceTime  = time.Second
)

// pace measures how many bytes the links to the other servers can carry.
type pace struct {
	mu    sync.Mutex
	bytes map[raft.ServerID]int // the limit of the bytes in a message to a server
}

// limit returns how many bytes the next message to a server may have.
func (p *pace) limit(id raft.ServerID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.bytes[id]; ok {
		return n
	}
	return paceMost
}

// note() records the duration of a message. Then the limit for the next message is the number of bytes that
// the link carries in paceTime. If this message failed, the limit becomes a quarter of the old one.
func (p *pace) note(id raft.ServerID, bytes int, took time.Duration, err error) {
	if bytes < min(paceLeast, p.limit(id)/2) && err == nil {
		return // the duration of a message this short does not depend on the link
	}
	next := paceMost
	switch {
	case err != nil:
		next = p.limit(id) / 4
	case took > paceTime/8:
		next = int(float64(bytes) * float64(paceTime) / float64(took))
		next = min(next, 2*p.limit(id)) // the new limit is at most twice the old one
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes[id] = min(max(next, paceLeast), paceMost)
}

// cut() keeps as many entries of a message as fit into a limit, but at least one, and returns how many bytes
// they have. Raft counts as sent only the entries that stay in the message.
func cut(args *raft.AppendEntriesRequest, limit int) (bytes int) {
	for i, e := range args.Entries {
		size := len(e.Data) + len(e.Extensions)
		if i > 0 && bytes+size > limit {
			args.Entries = args.Entries[:i]
			break
		}
		bytes += size
	}
	return bytes
}
