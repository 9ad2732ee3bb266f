package recipe

// decidePolicy says of each contender of a lock with a policy what it waits for. It decides as
// DecideRead, DecideWrite and DecideUpgrade do for one client, in one pass over all: a client names the
// one node to watch, and here are all that must go first, or the last of them if that one waits for the
// others. A waiter with nothing to wait for gets the lock in a moment. A test compares both in all
// states of a few contenders.
//
// A writer that has waited longer than the bound of PolicyReader is known by the door that it closes:
// a look at a lock has no clock.
func decidePolicy(list []item, data string) {
	rec, _ := ParsePolicyRecord([]byte(data))
	policy, _ := ParsePolicy(rec.Policy)
	p := policyLook{policy: policy, door: rec.Mark(), holds: map[ID]*item{}}
	for i := range list {
		p.hold(&list[i])
	}
	for i := range list {
		p.place(&list[i])
	}
	p.findDoor(list)
	for i := range list {
		switch it := &list[i]; {
		case it.hold:
			p.upgrade(it)
		case it.Kind == RoleRead:
			it.e.BlockedBy = p.read()
			p.queued(it)
		case it.Kind == RoleWrite:
			it.e.BlockedBy = p.write(it)
			p.queued(it)
		}
	}
}

// policyLook is a look at a lock with a policy. Lists of names are made once and shared by the
// contenders that wait for them.
type policyLook struct {
	policy Policy
	door   Door
	holds  map[ID]*item
	all    []string // holds
	writes []string // holds of writers
	owner  *item    // has a node that keeps the door closed

	readers    []string // that wait
	lastWriter string   // of those that wait, wherever they are
	keepsOut   []string // what keeps readers out, but for writers that are ahead of them

	// Of those that have been looked at, in the order of their turns: the last writer, and the readers
	// since.
	aheadWriter string
	since       []string
}

func (p *policyLook) hold(it *item) {
	if !it.hold {
		return
	}
	p.holds[it.id] = it
	it.e.HeldSince = it.Ctime // made by the grant
	p.all = append(p.all, it.Node.Name)
	if it.Kind == RoleWrite {
		p.writes = append(p.writes, it.Node.Name)
	}
}

// place tells the places of holders from contenders that wait.
func (p *policyLook) place(it *item) {
	switch hold := p.holds[it.id]; {
	case it.hold:
	case hold != nil:
		it.Kind = RoleMember // a writer keeps its place in the queue while it holds
		hold.e.Place = it.Node.Name
	case it.Kind == RoleWrite:
		p.lastWriter = it.Node.Name
	default:
		p.readers = append(p.readers, it.Node.Name)
	}
}

// findDoor finds the contender for which the door is closed, as PolicyView.DoorOwner does.
func (p *policyLook) findDoor(list []item) {
	for i := range list {
		it := &list[i]
		if p.door.Kind == DoorOpen || it.id != p.door.Owner || p.owner != nil {
			continue
		}
		switch {
		case it.hold && (it.Kind == RoleWrite || p.door.Kind == DoorUpgrade),
			it.Kind == RoleWrite && p.door.Kind == DoorWrite,
			it.Kind == RoleMember && p.door.Kind == DoorWrite && p.holds[it.id].Kind == RoleRead:
			p.owner = it
		}
	}
	p.keepsOut = p.writes
	if o := p.owner; o != nil && (!o.hold || o.Kind == RoleRead) {
		p.keepsOut = append(p.writes[:len(p.writes):len(p.writes)], o.Node.Name)
	}
}

// upgrade decides for a hold. A reader that has closed the door to become the writer waits for all
// other holds.
func (p *policyLook) upgrade(it *item) {
	if it.Kind == RoleRead && p.door == (Door{it.id, DoorUpgrade}) {
		it.e.BlockedBy = p.others(it.Node.Name)
	}
}

// others returns the holds but one.
func (p *policyLook) others(own string) []string {
	var list []string
	for _, name := range p.all {
		if name != own {
			list = append(list, name)
		}
	}
	return list
}

// queued notes that a contender is ahead of the next ones.
func (p *policyLook) queued(it *item) {
	if it.Kind == RoleWrite {
		p.aheadWriter, p.since = it.Node.Name, nil
	} else {
		p.since = append(p.since, it.Node.Name)
	}
}

// read decides for the next reader that waits.
func (p *policyLook) read() []string {
	writer := ""
	switch p.policy {
	case PolicyWriter:
		writer = p.lastWriter
	case PolicyFair:
		writer = p.aheadWriter
	}
	if writer != "" {
		return []string{writer} // it waits for the others
	}
	if p.keepsOut == nil {
		return []string{}
	}
	return p.keepsOut
}

// write decides for the next writer that waits.
func (p *policyLook) write(it *item) []string {
	switch {
	case p.owner == it:
		return append([]string{}, p.all...) // it lets no more readers in
	case p.aheadWriter != "" && p.policy == PolicyFair && p.since != nil:
		return p.since // they wait for the writer ahead
	case p.aheadWriter != "":
		return []string{p.aheadWriter}
	}
	list := append([]string{}, p.all...)
	switch p.policy {
	case PolicyFair:
		list = append(list, p.since...)
	case PolicyReader:
		list = append(list, p.readers...)
	}
	if o := p.owner; o != nil && !o.hold && o.Kind != RoleMember {
		list = append(list, o.Node.Name)
	}
	return list
}
