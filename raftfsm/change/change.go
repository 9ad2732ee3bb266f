package change

import "slices"

// Op is a kind of change.
type Op string

// The kinds of changes. Operators ask for the first five kinds. The request `reconfig` asks for the first
// eight kinds except Lead. The last two kinds are only in jobs: a leader never gets them.
const (
	Add      Op = "add"      // a server follows without a vote
	Promote  Op = "promote"  // a member that has caught up gets a vote
	Move     Op = "move"     // a member has another address
	Remove   Op = "remove"   // a server is no longer a member
	Lead     Op = "lead"     // a member becomes the leader
	Demote   Op = "demote"   // a voter loses its vote and continues to follow
	Vote     Op = "vote"     // a server gets a vote, whether it runs or not
	Describe Op = "describe" // only the operator's descriptions are published

	Replace Op = "replace" // a server with an empty data directory takes the place of a member
	Check   Op = "check"   // nothing changes; the answer says whether a server could be a member
)

// Change is one change of the cluster's members. Its text is part of the messages between servers.
type Change struct {
	Op   Op     `json:"op"`
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"` // address for other servers; in Add, Vote and Move

	// Words are the operator's lines for config.Path, which describe the members after this change. They are
	// published as a new version when the change is done. Empty: the operator wrote none.
	Words string `json:"words,omitempty"`
	// More says that more changes follow at once. Clients see all of them as one change.
	More bool `json:"more,omitempty"`
	// By is the server that asks for a series of changes. The series starts from version Since of the
	// configuration.
	By    uint32 `json:"by,omitempty"`
	Since int64  `json:"since,omitempty"`
}

// Voters returns the voters after the change, given the voters before it.
func (c *Change) Voters(now []uint32) []uint32 {
	rest := make([]uint32, 0, len(now)+1)
	for _, id := range now {
		if id != c.ID || c.Op != Remove && c.Op != Demote {
			rest = append(rest, id)
		}
	}
	if (c.Op == Promote || c.Op == Vote) && !slices.Contains(rest, c.ID) {
		rest = append(rest, c.ID)
	}
	return rest
}
