package turns

import "github.com/zlockd/zlockd/client/recipe"

// decidePolicy determines for each contender of a lock with a policy what it waits for. It decides as
// DecideRead, DecideWrite and DecideUpgrade do for one client, but in one pass over all contenders. Those
// functions return the one node to watch. decidePolicy returns all nodes that must go first, or only the last
// one if that node waits for the others. A waiter without such nodes gets the lock soon. A test compares
// decidePolicy with those functions in all states of a few contenders.
//
// decidePolicy has no clock. It recognises a writer that is overdue under PolicyReader by the door that the
// writer closes.
func decidePolicy(list []item, data string) {
	rec, _ := recipe.ParsePolicyRecord([]byte(data))
	policy, _ := recipe.ParsePolicy(rec.Policy)
	p := policyLook{policy: policy, door: rec.Mark(), holds: map[recipe.ID]*item{}}
	for i := range list {
		p.hold(&list[i])
	}
	for i := range list {
		p.place(&list[i])
	}
	p.findDoor(list)
	for i := range list {
		switch it := &list[i]; {
		case it.Hold:
			p.upgrade(it)
		case it.Kind == recipe.RoleRead:
			it.e.BlockedBy = p.read()
			p.queued(it)
		case it.Kind == recipe.RoleWrite:
			it.e.BlockedBy = p.write(it)
			p.queued(it)
		}
	}
}

// policyLook is the state of decidePolicy. Contenders that wait for the same nodes share one list of names.
type policyLook struct {
	policy recipe.Policy
	door   recipe.Door
	holds  map[recipe.ID]*item
	all    []string // holds
	writes []string // holds of writers
	owner  *item    // the contender whose node keeps the door closed

	readers    []string // waiting readers
	lastWriter string   // the last waiting writer, in the queue or at the door
	keepsOut   []string // the nodes that block readers, except writers ahead of them

	// Among the contenders so far, in the order of their turns: the last writer, and the readers after it.
	aheadWriter string
	since       []string
}

func (p *policyLook) hold(it *item) {
	if !it.Hold {
		return
	}
	p.holds[it.ID] = it
	it.e.HeldSince = it.Ctime // the grant made the node
	p.all = append(p.all, it.Node.Name)
	if it.Kind == recipe.RoleWrite {
		p.writes = append(p.writes, it.Node.Name)
	}
}

// place() records a queue node: either a holder keeps it, or its contender waits.
func (p *policyLook) place(it *item) {
	switch hold := p.holds[it.ID]; {
	case it.Hold:
	case hold != nil:
		it.Kind = recipe.RoleMember // the contender is no waiter: a writer keeps its queue node while it holds
		hold.e.Place = it.Node.Name
	case it.Kind == recipe.RoleWrite:
		p.lastWriter = it.Node.Name
	default:
		p.readers = append(p.readers, it.Node.Name)
	}
}

// findDoor finds the contender for which the door is closed, as PolicyView.DoorOwner does.
func (p *policyLook) findDoor(list []item) {
	for i := range list {
		it := &list[i]
		if p.door.Kind == recipe.DoorOpen || it.ID != p.door.Owner || p.owner != nil {
			continue
		}
		switch {
		case it.Hold && (it.Kind == recipe.RoleWrite || p.door.Kind == recipe.DoorUpgrade),
			it.Kind == recipe.RoleWrite && p.door.Kind == recipe.DoorWrite,
			it.Kind == recipe.RoleMember && p.door.Kind == recipe.DoorWrite && p.holds[it.ID].Kind == recipe.RoleRead:
			p.owner = it
		}
	}
	p.keepsOut = p.writes
	if o := p.owner; o != nil && (!o.Hold || o.Kind == recipe.RoleRead) {
		p.keepsOut = append(p.writes[:len(p.writes):len(p.writes)], o.Node.Name)
	}
}

// upgrade() decides for a hold. A reader that has closed the door to become the writer waits for all other
// holds.
func (p *policyLook) upgrade(it *item) {
	if it.Kind == recipe.RoleRead && p.door == (recipe.Door{Owner: it.ID, Kind: recipe.DoorUpgrade}) {
		it.e.BlockedBy = p.others(it.Node.Name)
	}
}

// others() returns all holds except `own`.
func (p *policyLook) others(own string) []string {
	var list []string
	for _, name := range p.all {
		if name != own {
			list = append(list, name)
		}
	}
	return list
}

// queued() records that a contender is ahead of the later ones.
func (p *policyLook) queued(it *item) {
	if it.Kind == recipe.RoleWrite {
		p.aheadWriter, p.since = it.Node.Name, nil
	} else {
		p.since = append(p.since, it.Node.Name)
	}
}

// read() decides for the next waiting reader.
func (p *policyLook) read() []string {
	writer := ""
	switch p.policy {
	case recipe.PolicyWriter:
		writer = p.lastWriter
	case recipe.PolicyFair:
		writer = p.aheadWriter
	}
	if writer != "" {
		return []string{writer} // the writer waits for the other nodes that must go first
	}
	if p.keepsOut == nil {
		return []string{}
	}
	return p.keepsOut
}

// write() decides for the next waiting writer.
func (p *policyLook) write(it *item) []string {
	switch {
	case p.owner == it:
		return append([]string{}, p.all...) // the closed door admits no more readers
	case p.aheadWriter != "" && p.policy == recipe.PolicyFair && p.since != nil:
		return p.since // these readers wait for the writer ahead
	case p.aheadWriter != "":
		return []string{p.aheadWriter}
	}
	list := append([]string{}, p.all...)
	switch p.policy {
	case recipe.PolicyFair:
		list = append(list, p.since...)
	case recipe.PolicyReader:
		list = append(list, p.readers...)
	}
	if o := p.owner; o != nil && !o.Hold && o.Kind != recipe.RoleMember {
		list = append(list, o.Node.Name)
	}
	return list
}
