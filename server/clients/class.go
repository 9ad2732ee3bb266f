package clients

import "github.com/zlockd/zlockd/jute"

// class is the way in which the server carries out an operation.
type class uint8

const (
	unknownOp class = iota
	readOp          // reads the local state, under View
	writeOp         // through the log
	closeOp         // through the log, and then ends the connection
	pingOp
	catchUpOp  // setWatches
	authOp     // changes the client's identities
	saslOp     // the same, in several rounds
	localOp    // answered with data of the connection alone
	refusedOp  // known, but never carried out
	reconfigOp // changes the membership
)

func classOf(op jute.OpCode) class {
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetACL,
		jute.OpMultiRead, jute.OpGetEphemerals, jute.OpGetAllChildrenNumber,
		jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return readOp
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete,
		jute.OpSetData, jute.OpSetACL, jute.OpMulti, jute.OpSync:
		return writeOp
	case jute.OpCloseSession:
		return closeOp
	case jute.OpPing:
		return pingOp
	case jute.OpSetWatches, jute.OpSetWatches2:
		return catchUpOp
	case jute.OpAuth:
		return authOp
	case jute.OpSASL:
		return saslOp
	case jute.OpWhoAmI:
		return localOp
	case jute.OpCheck, jute.OpDeleteContainer:
		return refusedOp
	case jute.OpReconfig:
		return reconfigOp
	}
	return unknownOp
}
