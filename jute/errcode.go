package jute

import "strconv"

// ErrCode is the outcome of an operation as it travels to clients. Codes are part of the protocol: this
// package never adds or renumbers one.
type ErrCode int32

// The codes that a server sends.
const (
	OK                       ErrCode = 0
	RuntimeInconsistency     ErrCode = -2
	MarshallingError         ErrCode = -5
	Unimplemented            ErrCode = -6
	BadArguments             ErrCode = -8
	UnknownSession           ErrCode = -12
	NewConfigNoQuorum        ErrCode = -13
	ReconfigInProgress       ErrCode = -14
	NoNode                   ErrCode = -101
	NoAuth                   ErrCode = -102
	BadVersion               ErrCode = -103
	NoChildrenForEphemerals  ErrCode = -108
	NodeExists               ErrCode = -110
	NotEmpty                 ErrCode = -111
	SessionExpired           ErrCode = -112
	InvalidACL               ErrCode = -114
	AuthFailed               ErrCode = -115
	SessionMoved             ErrCode = -118
	NotReadOnly              ErrCode = -119
	NoWatcher                ErrCode = -121
	ReconfigDisabled         ErrCode = -123
	SessionClosedRequireAuth ErrCode = -124
	QuotaExceeded            ErrCode = -125
	Throttled                ErrCode = -127
)

var errNames = map[ErrCode]string{
	OK: "ok", RuntimeInconsistency: "runtime inconsistency", MarshallingError: "marshalling error",
	Unimplemented: "unimplemented", BadArguments: "bad arguments", UnknownSession: "unknown session",
	NewConfigNoQuorum: "no quorum of new config", ReconfigInProgress: "reconfig in progress",
	NoNode: "no node", NoAuth: "not authorized", BadVersion: "bad version",
	NoChildrenForEphemerals: "no children for ephemerals", NodeExists: "node exists",
	NotEmpty: "not empty", SessionExpired: "session expired", InvalidACL: "invalid ACL",
	AuthFailed: "authentication failed", SessionMoved: "session moved", NotReadOnly: "not in read-only mode",
	NoWatcher:        "no watcher",
	ReconfigDisabled: "reconfig disabled", SessionClosedRequireAuth: "session closed: authentication required",
	QuotaExceeded: "quota exceeded", Throttled: "throttled",
}

// Error returns the code's name and number.
func (e ErrCode) Error() string {
	if s, ok := errNames[e]; ok {
		return s + " (" + strconv.Itoa(int(e)) + ")"
	}
	return "error " + strconv.Itoa(int(e))
}
