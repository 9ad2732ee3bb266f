package peer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Purpose is what a connection is for.
type Purpose byte

// Purposes of connections.
const (
	Raft Purpose = 'R' // raft's requests
	Link Purpose = 'L' // a server's request stream to the leader
	Ask  Purpose = 'A' // one question, one answer, both JSON
)

const greetTime = 5 * time.Second

// Greeting opens a connection between servers. The called server refuses a server of another cluster, and a
// server that has lost its disk and so is no longer the same member.
type Greeting struct {
	From        uint32 `json:"from"`
	To          uint32 `json:"to"` // id of the called server; 0: any server
	Cluster     string `json:"cluster"`
	Incarnation string `json:"incarnation"`
	// Identity.Expected of the caller's directory; see package disk
	Expected uint64 `json:"expected,omitempty"`
	At       string `json:"at,omitempty"` // the caller's address for peers, as the caller gives it
	Release  string `json:"release,omitempty"`
	Shown
	End uint64 `json:"end,omitempty"` // index of the last entry in the caller's log

	// Known is what the called server has shown to the caller so far, under the incarnation KnownAs.
	Known   *Shown `json:"known,omitempty"`
	KnownAs string `json:"known_as,omitempty"`

	// Call fills in the fields below: the versions that the caller understands.
	Version int `json:"version"`
	Oldest  int `json:"oldest"`
}

// Version and Oldest are the newest and the oldest version of the messages between servers that this program
// understands. Log entries are among these messages. A server sends messages of a version only after all
// members have announced that version.
const (
	Version = 3 // version 2 added state.Founding, version 3 state.Ticketing
	Oldest  = 1
)

// Understands reports whether the caller and this server have a version in
// common.
func (g *Greeting) Understands() bool { return g.Version >= Oldest && g.Oldest <= Version }

// ErrRefused marks the answer of a server that refuses this server.
var ErrRefused = errors.New("refused")

// Refusal is the answer of a server that refuses this server, with the reason.
type Refusal struct{ Reason string }

// Error implements error.
func (r *Refusal) Error() string { return ErrRefused.Error() + ": " + r.Reason }

// Unwrap makes every Refusal an ErrRefused.
func (*Refusal) Unwrap() error { return ErrRefused }

// writeAnswer answers a greeting.
func writeAnswer(w io.Writer, reason error) error {
	b := []byte{0}
	if reason != nil {
		text := reason.Error()
		b = binary.BigEndian.AppendUint32([]byte{1}, uint32(len(text)))
		b = append(b, text...)
	}
	_, err := w.Write(b)
	return err
}

// readAnswer returns nil if the called server has admitted the caller.
func readAnswer(r io.Reader) error {
	var b [5]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil || b[0] == 0 {
		return err
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return err
	}
	text := make([]byte, min(binary.BigEndian.Uint32(b[1:]), 4096))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return &Refusal{string(text)}
}

// Shown is the progress of a server's data directory, as the server has shown it to others. Its values never
// decrease. A server that shows less than before runs from an old copy of the directory. The copy lacks votes
// and entries on which other servers rely, so the server must not vote.
type Shown struct {
	Start uint64 `json:"start,omitempty"` // how often the directory was started
	Life  string `json:"life,omitempty"`  // random name of the directory's last start
	Term  uint64 `json:"term,omitempty"`
	Index uint64 `json:"index,omitempty"` // index of the last log entry that the server has applied
}

// Raise replaces each value of s that is lower than in the argument.
func (s *Shown) Raise(now Shown) {
	if now.Start > s.Start {
		s.Start, s.Life = now.Start, now.Life
	}
	s.Term = max(s.Term, now.Term)
	s.Index = max(s.Index, now.Index)
}

// Behind says which value of s is lower than the earlier value in `before`. It also compares the earlier
// index with `end`, the index of the last entry in the directory's log. It returns "" if no value is lower.
func (s Shown) Behind(before Shown, end uint64) string {
	switch {
	case s.Start < before.Start:
		return fmt.Sprintf("it was started %d times before, but other servers know of %d "+
			"starts", s.Start-1, before.Start)
	case s.Start == before.Start && s.Life != before.Life:
		return fmt.Sprintf("its start number %d was used before", s.Start)
	case s.Start == before.Start:
		return "" // the same process, whose messages may arrive out of order
	case s.Term < before.Term:
		return fmt.Sprintf("its newest term is %d, but it has been in term %d", s.Term, before.Term)
	case end < before.Index:
		return fmt.Sprintf("its log ends at entry %d, but it has applied entry %d", end, before.Index)
	}
	return ""
}

// maxJSON is the longest greeting, question or answer.
const maxJSON = 1 << 20

// readJSON reads a length, and then so many bytes of JSON.
func readJSON(r io.Reader, v any) error {
	b, err := readFrame(r, maxJSON, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// writeJSON writes the bytes of its last argument, and then v in the form that readJSON reads, in one call.
func writeJSON(w io.Writer, v any, before ...byte) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxJSON {
		return fmt.Errorf("a message of %d bytes is too long: at most %d are allowed", len(b), maxJSON)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(before, uint32(len(b))), b...))
	return err
}
