package recipe

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxOwnerData bounds the owner record in a node.
const MaxOwnerData = 1 << 10

// Owner is the record with which a contender of package client describes itself in its node. No decision
// depends on it. It has no times, because a client's clock proves nothing.
type Owner struct {
	Version   int    `json:"v"` // 1
	Host      string `json:"host,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Cmd       string `json:"cmd,omitempty"`       // the program's name, or WithName
	User      string `json:"user,omitempty"`      // user of the operating system
	Client    string `json:"client,omitempty"`    // random, one for each Client
	Task      string `json:"task,omitempty"`      // the task; see Task of package client
	Reason    string `json:"reason,omitempty"`    // WithReason, possibly shortened
	Revocable bool   `json:"revocable,omitempty"` // WithRevocable
	// MaxHold and Grace are durations as text; see WithMaxHold of package client.
	MaxHold string `json:"maxHold,omitempty"`
	Grace   string `json:"grace,omitempty"`
	// A holder sets Over when it has exceeded its maximum hold and its node still exists.
	Over bool `json:"over,omitempty"`
	// Limit is the number of permits that a waiter's program gives the semaphore if none is stored.
	Limit int `json:"limit,omitempty"`
	// Release 0.1.0 wrote Breakable (others may break the lock) and Held (the lock was granted, at the node's
	// mtime).
	Breakable bool        `json:"breakable,omitempty"`
	Held      bool        `json:"held,omitempty"`
	Revoke    *Revocation `json:"revoke,omitempty"`
}

// EncodeOwner encodes an owner record in at most MaxOwnerData bytes. It cuts a long reason first,
// and then the other long fields.
func EncodeOwner(o Owner) []byte {
	o.Version = 1
	for _, cut := range []*string{&o.Reason, &o.Cmd, &o.Task, &o.User, &o.Host} {
		for {
			b, err := json.Marshal(o)
			if err == nil && len(b) <= MaxOwnerData {
				return b
			}
			if *cut == "" {
				break
			}
			// Escapes make the record longer than the text, so several rounds may be needed.
			*cut = CutText(*cut, len(*cut)-max(1, (len(b)-MaxOwnerData)/6))
		}
	}
	b, _ := json.Marshal(Owner{Version: 1})
	return b
}

// DefaultGrace is how long a node stays after its maximum hold is over, so that the holder can finish.
const DefaultGrace = time.Second

// ParseOwner reads the owner record in a node's data. It returns false for other data.
func ParseOwner(data []byte) (Owner, bool) {
	var o Owner
	b := data[recordAt(data):]
	if len(b) == 0 || len(b) > 2*MaxOwnerData || b[0] != '{' || json.Unmarshal(b, &o) != nil || o.Version != 1 {
		return Owner{}, false
	}
	return o, true
}

// recordAt returns where the owner record begins in a node's data, if there is one: after the last
// zero byte, because no record has such a byte.
func recordAt[T []byte | string](data T) int { return strings.LastIndexByte(string(data), 0) + 1 }

// MarkOver returns a node's data with Over set in the owner record. It returns nil if the data have no owner
// record.
func MarkOver(data []byte) []byte {
	o, ok := ParseOwner(data)
	if !ok || o.Over {
		return nil
	}
	o.Over = true
	at := recordAt(data)
	return append(data[:at:at], EncodeOwner(o)...)
}

// CutText shortens s to at most n bytes, at a rune's border.
func CutText(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if n >= len(s) {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// EncodeValue encodes a value that other programs read, such as a leader's, with an owner record
// after it. A zero byte ends the value.
func EncodeValue(value []byte, o Owner) []byte {
	return append(append(bytes.Clone(value), 0), EncodeOwner(o)...)
}

// Mistakable reports whether a value without a record would look like an owner record, or like a request to
// leave. Such a value needs a record after it, because then the last zero byte shows where the value ends.
func Mistakable(value []byte) bool {
	_, record := ParseOwner(value)
	_, asked := RevocationIn(value)
	return record || asked
}

// ValueOf returns a node's value, such as a leader's, without the owner record after it. The result `asked`
// says whether the data end in a request to leave instead of a record.
func ValueOf(data []byte) (value []byte, asked bool) {
	if at := recordAt(data); at > 0 {
		if _, ok := ParseOwner(data); ok {
			return data[:at-1], false
		}
	}
	return bytes.CutSuffix(data, []byte(askedMark))
}

// WithValue returns a node's data with another value. It keeps the bytes after the value.
func WithValue(data, value []byte) []byte {
	old, _ := ValueOf(data)
	if behind := data[len(old):]; len(behind) > 0 {
		return append(bytes.Clone(value), behind...)
	}
	if Mistakable(value) {
		return EncodeValue(value, Owner{})
	}
	return bytes.Clone(value)
}
