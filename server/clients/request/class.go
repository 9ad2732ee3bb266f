// Package request says what a client asks for: the class of a request, what it costs, how the tree answers a
// read, and which watch the read sets. The package does not depend on connections.
package request

import "github.com/zlockd/zlockd/jute"

// Class says how the server carries out an operation.
type Class uint8

// The classes.
const (
	Unknown Class = iota
	Read          // reads this server's state, and needs no log entry
	Write         // goes through the log
	Close         // goes through the log, and then ends the connection
	Ping
	CatchUp  // setWatches
	Auth     // adds to the client's identities
	SASL     // may add to the identities, too, after several rounds
	Local    // answered from data of the connection, without the state
	Refused  // known, but never carried out
	Reconfig // changes the membership
)

// Of returns the class of an operation.
func Of(op jute.OpCode) Class {
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetACL,
		jute.OpMultiRead, jute.OpGetEphemerals, jute.OpGetAllChildrenNumber,
		jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return Read
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete,
		jute.OpSetData, jute.OpSetACL, jute.OpMulti, jute.OpSync:
		return Write
	case jute.OpCloseSession:
		return Close
	case jute.OpPing:
		return Ping
	case jute.OpSetWatches, jute.OpSetWatches2:
		return CatchUp
	case jute.OpAuth:
		return Auth
	case jute.OpSASL:
		return SASL
	case jute.OpWhoAmI:
		return Local
	case jute.OpCheck, jute.OpDeleteContainer:
		return Refused
	case jute.OpReconfig:
		return Reconfig
	}
	return Unknown
}
