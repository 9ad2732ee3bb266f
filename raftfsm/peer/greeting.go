package peer

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// Purpose is what a connection is for.
type Purpose byte

// Purposes of connections.
const (
	Raft   Purpose = 'R' // raft's own RPCs, in raft's own coding
	Append Purpose = 'E' // raft's AppendEntries, in ours; for servers that know VersionAppend
	Link   Purpose = 'L' // a server's request stream to the leader
	Ask    Purpose = 'A' // one question, one answer, both JSON
)

const greetTime = 5 * time.Second

// Greeting opens a connection between servers. A server of another cluster, or
// one that has lost its disk and is not who the others think, is refused.
type Greeting struct {
	From        uint32 `json:"from"`
	To          uint32 `json:"to"` // 0: whoever it is
	Cluster     string `json:"cluster"`
	Incarnation string `json:"birth"`
	Expected    uint64 `json:"expected,omitempty"` // of the caller's directory; see disk.Identity
	At          string `json:"at,omitempty"`       // where the caller is reached, by its own word
	Release     string `json:"release,omitempty"`
	Shown
	End uint64 `json:"end,omitempty"` // of the caller's log

	// Known is what the caller has been shown by the one that it calls, whom it
	// knows as the incarnation KnownAs.
	Known   *Shown `json:"known,omitempty"`
	KnownAs string `json:"known_as,omitempty"`

	// Versions of what servers say to each other, log entries included, that
	// the caller understands. They are filled in by Call.
	Version int `json:"version"`
	Oldest  int `json:"oldest"`
}

// Versions this program understands. A version that servers of the one before
// cannot follow must not be spoken before all members announce it.
const (
	Version = VersionAppend
	Oldest  = 1
)

// VersionSets is the first whose log entries name a set of identities once.
const VersionSets = 2

// VersionFound is the first that knows an entry that founds a cluster, and
// keeps what operators write of members.
const VersionFound = 3

// VersionStage is the first that knows entries that restore a running cluster.
const VersionStage = 4

// VersionAppend is the first that takes AppendEntries on connections of their
// own, and whose answer to a greeting tells its version to those who know that.
const VersionAppend = 5

// Understands reports whether the caller and this server have a version in
// common.
func (g *Greeting) Understands() bool { return g.Version >= Oldest && g.Oldest <= Version }

// ErrRefused marks the answer of a server that does not talk to this one.
var ErrRefused = errors.New("refused")

// Refusal is the answer of a server that does not talk to this one, and why not.
type Refusal struct{ Reason string }

// Error implements error.
func (r *Refusal) Error() string { return ErrRefused.Error() + ": " + r.Reason }

// Unwrap makes every Refusal an ErrRefused.
func (*Refusal) Unwrap() error { return ErrRefused }

// writeAnswer answers a greeting by a caller that understands a version.
func writeAnswer(w io.Writer, version int, reason error) error {
	b := []byte{0}
	switch {
	case reason == nil && version >= VersionAppend:
		b = []byte{2, Version}
	case reason != nil:
		text := reason.Error()
		b = binary.BigEndian.AppendUint32([]byte{1}, uint32(len(text)))
		b = append(b, text...)
	}
	_, err := w.Write(b)
	return err
}

// readAnswer returns the version of the server that has let us in; Oldest: it
// does not tell.
func readAnswer(r io.Reader) (version int, err error) {
	var b [5]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return 0, err
	}
	switch b[0] {
	case 0:
		return Oldest, nil
	case 2:
		_, err := io.ReadFull(r, b[1:2])
		return int(b[1]), err
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return 0, err
	}
	text := make([]byte, min(binary.BigEndian.Uint32(b[1:]), 4096))
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, err
	}
	return 0, &Refusal{string(text)}
}
