package recipe

import (
	"bytes"
	"encoding/json"
	"time"
)

// CuratorRevoke is the data with which Curator asks a contender to leave.
const CuratorRevoke = "__REVOKE__"

// Revocation asks a contender to leave.
type Revocation struct {
	By       string    `json:"by,omitempty"`      // name of the asker
	Reason   string    `json:"reason,omitempty"`  // purpose of the request
	Deadline time.Time `json:"deadline,omitzero"` // when the asker would like the lock; not enforced
}

// RevocationIn finds the revocation in a node's data.
func RevocationIn(data []byte) (Revocation, bool) {
	if _, asked := ValueOf(data); asked || string(data) == CuratorRevoke {
		return Revocation{}, true
	}
	if !bytes.Contains(data, []byte(`"revoke"`)) {
		return Revocation{}, false // most data have no revocation, so do not decode them
	}
	if o, ok := ParseOwner(data); ok && o.Revoke != nil {
		return *o.Revoke, true
	}
	return Revocation{}, false
}

// askedMark follows the value in a node of package client if the node's contender is asked to leave.
const askedMark = "\x00" + CuratorRevoke

// AskBack adds the revocation to the data of a contender's node. An owner record gets the revocation as a
// field. A bare value of package client, such as a leader's, gets a mark after it. For contenders of other
// programs, the revocation in Curator's form replaces the data.
func AskBack(data []byte, made Maker, r Revocation) []byte {
	o, ok := ParseOwner(data)
	switch {
	case !ok && made == MakerSelf:
		return append(bytes.Clone(data), askedMark...)
	case !ok:
		return []byte(CuratorRevoke)
	}
	r.By, r.Reason = CutText(r.By, 100), CutText(r.Reason, 200)
	value, record := data[:recordAt(data):recordAt(data)], data[recordAt(data):]
	fields := map[string]json.RawMessage{}
	wish, err := json.Marshal(r)
	if err == nil && json.Unmarshal(record, &fields) == nil {
		fields["revoke"] = wish
		if b, err := json.Marshal(fields); err == nil && len(b) <= 2*MaxOwnerData {
			return append(value, b...)
		}
	}
	o.Revoke = &r // EncodeOwner shortens the record to make room
	return append(value, EncodeOwner(o)...)
}

// Asked returns the revocation of the contender, if there is one.
func (e *Entry) Asked() (Revocation, bool) {
	switch {
	case e.raw != "":
		return RevocationIn([]byte(e.raw))
	case e.Owner != nil && e.Owner.Revoke != nil:
		return *e.Owner.Revoke, true
	}
	return RevocationIn([]byte(e.Data))
}

// Askable reports whether a client can ask the contender to leave: whether its program looks for a
// revocation in its node.
func (e *Entry) Askable() bool {
	if e.Token == 0 || e.Hidden {
		return false // only a watch of the contender is known, or the caller may not read its record
	}
	_, ours := e.Record()
	return ours || e.Maker == MakerCurator || e.Maker == MakerSelf
}
