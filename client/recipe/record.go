package recipe

import (
	"encoding/json"
	"slices"
	"time"
)

// Record is the record of package client in the data of a lock's directory.
type Record struct {
	ZL     int     `json:"zl"`               // 1
	Holder *string `json:"holder,omitempty"` // lock delay: id of the hold, "" after a clean unlock
	// Dead says that the owner of the mark (Holder or Door) was found dead. The lock delay begins when a
	// contender writes Dead. See DelayLeft of package turns.
	Dead  bool `json:"dead,omitempty"`
	Limit int  `json:"limit,omitempty"` // how many permits a semaphore has

	// The fields below belong to a lock with a policy.
	Layout        string  `json:"layout,omitempty"` // "rw1"
	Policy        string  `json:"policy,omitempty"`
	MaxWriterWait string  `json:"maxWriterWait,omitempty"`
	Door          *string `json:"gate,omitempty"` // uuid of the node for which the door is closed, or empty
	Kind          string  `json:"kind,omitempty"`
}

// ParseRecord reads a directory's data. Empty data give the zero record; for data of other programs it
// returns false.
func ParseRecord(b []byte) (Record, bool) {
	var r Record
	if len(b) == 0 {
		return r, true
	}
	if len(b) > 2*MaxOwnerData || b[0] != '{' || json.Unmarshal(b, &r) != nil || r.ZL != 1 ||
		len(r.Policy) > 20 {
		return Record{}, false
	}
	return r, true
}

func (r Record) Encode() []byte {
	r.ZL = 1
	b, _ := json.Marshal(r) // cannot fail: only strings and numbers
	return b
}

// NewPolicyRecord returns the record for the directory of a new lock with a policy.
func NewPolicyRecord(p Policy, maxWriterWait time.Duration) Record {
	return Record{Layout: LayoutPolicy.String(), Policy: p.String(), MaxWriterWait: maxWriterWait.String(),
		Door: new(string)}
}

// DefaultMaxWriterWait is how long readers may overtake a writer under [PolicyReader], unless the
// record says otherwise.
const DefaultMaxWriterWait = 10 * time.Second

// ParsePolicyRecord reads a directory's data; it returns false if they are not the record of a policy lock.
func ParsePolicyRecord(b []byte) (Record, bool) {
	r, ok := ParseRecord(b)
	return r, ok && r.Layout == LayoutPolicy.String()
}

// Door is the mark in the record. It says for which contender the door is closed, and why. The zero value
// means that there is no mark.
type Door struct {
	Owner ID
	Kind  DoorKind
}

type DoorKind uint8

const (
	DoorOpen    DoorKind = iota
	DoorWrite            // a queued writer closed the door; valid while that writer's q-W or h-W exists
	DoorUpgrade          // an upgrading reader closed the door; valid while that reader's h-R or h-W exists
)

// doorKinds says how a record names the reason for a closed door.
var doorKinds = [...]string{DoorOpen: "", DoorWrite: "w", DoorUpgrade: "u"}

// Mark reads the mark of the door. An unreadable mark counts as no mark.
func (r Record) Mark() Door {
	if r.Door == nil {
		return Door{}
	}
	id, ok := ParseUUID(*r.Door)
	kind := slices.Index(doorKinds[:], r.Kind)
	if !ok || kind <= int(DoorOpen) {
		return Door{}
	}
	return Door{id, DoorKind(kind)}
}

// WithDoor returns the record with g as the mark of the door.
func (r Record) WithDoor(g Door) Record {
	owner := ""
	if g.Kind != DoorOpen {
		owner = g.Owner.UUID()
	}
	r.Door, r.Kind, r.Dead = &owner, doorKinds[g.Kind], false
	return r
}

// WriterBound returns how long readers may overtake a writer.
func (r Record) WriterBound() time.Duration {
	d, err := time.ParseDuration(r.MaxWriterWait)
	if err != nil || d < 0 {
		return DefaultMaxWriterWait
	}
	return d
}
