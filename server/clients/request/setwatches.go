package request

import "github.com/zlockd/zlockd/jute"

// Lists returns the lists of a setWatches in the order of the protocol. Only setWatches2 has the last two.
func Lists(r *jute.SetWatches, op jute.OpCode) []*[]string {
	all := []*[]string{&r.Data, &r.Exist, &r.Child, &r.Persistent, &r.Recursive}
	if op == jute.OpSetWatches {
		return all[:3]
	}
	return all
}

// WholeLists reports whether a setWatches is complete and well formed.
func WholeLists(op jute.OpCode, body []byte) bool {
	d := jute.NewDecoder(body)
	d.Long()
	for range Lists(new(jute.SetWatches), op) {
		n := d.Count(4)
		for range n {
			if _, named := d.String(); !named {
				return false
			}
		}
		if n < 0 || d.Err() != nil {
			return false
		}
	}
	return true
}
