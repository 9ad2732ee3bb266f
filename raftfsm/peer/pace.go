package peer

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of a message with log entries, in bytes. raft bounds their number
// alone, and a message that takes longer than rpcTimeout is sent again and
// again: over a slow link a server that is behind would never catch up.
const (
	paceMost  = 8 << 20
	paceLeast = 64 << 10 // but at least one entry
	paceTime  = time.Second
)

// pace is what the links to the other servers have shown they can do.
type pace struct {
	mu    sync.Mutex
	bytes map[raft.ServerID]int // that a message may have
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

// note takes how long a message took. The next one may have as many bytes as
// went in paceTime; after a failure a quarter.
func (p *pace) note(id raft.ServerID, bytes int, took time.Duration, err error) {
	// More than half of what is sent at once is what goes in one message of many.
	if bytes < min(paceLeast, p.limit(id)/2) && err == nil {
		return // the time was not that of the link
	}
	next := paceMost
	switch {
	case err != nil:
		next = p.limit(id) / 4
	case took > paceTime/8:
		next = int(float64(bytes) * float64(paceTime) / float64(took))
		next = min(next, 2*p.limit(id)) // carefully upwards
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes == nil {
		p.bytes = map[raft.ServerID]int{}
	}
	p.bytes[id] = min(max(next, paceLeast), paceMost)
}

// cut keeps the first entries of a message that fit into a limit, at least one,
// and returns their bytes. raft counts those it finds in the message as sent.
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
