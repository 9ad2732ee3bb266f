package fence

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrStale reports a token of a hold that a later hold has superseded, or a sequencer whose hold is
// over.
var ErrStale = errors.New("fence: stale token")

// ErrInvalid reports an invalid text or value of a token, a sequencer or a mode.
var ErrInvalid = errors.New("fence: invalid")

// Token is the fencing number of one hold of a lock: the transaction number
// that created the hold's node. Tokens of successive exclusive holds of one
// lock strictly increase. Zero and negative values are never valid.
//
// The text form is decimal. In JSON it is a string, because tokens may exceed 2^53, the largest integer that
// many readers of JSON can represent.
type Token int64

// ParseToken reads the decimal text form.
func ParseToken(s string) (Token, error) {
	t, err := parseToken(s)
	if err != nil {
		return 0, err
	}
	if !t.Valid() {
		return 0, fmt.Errorf("%w token %q", ErrInvalid, s)
	}
	return t, nil
}

// parseToken accepts only what String writes, so that a token has only one spelling. It also accepts zero,
// which means that there is no token.
func parseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%w token %q", ErrInvalid, s)
	}
	return Token(n), nil
}

// Valid reports whether t can be the token of a hold.
func (t Token) Valid() bool { return t > 0 }

// String returns the decimal text form.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalText makes encoding/json write the token as a string.
func (t Token) MarshalText() ([]byte, error) {
	if t < 0 {
		return nil, fmt.Errorf("%w token %d", ErrInvalid, int64(t))
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads what MarshalText writes. It also accepts zero, which means that there is no token; a
// [Gate] refuses it.
func (t *Token) UnmarshalText(b []byte) error {
	v, err := parseToken(string(b))
	if err != nil {
		return err
	}
	*t = v
	return nil
}

// Mode says how a lock is held.
type Mode uint8

const (
	// Exclusive is a mutex, a write lock or a leadership.
	Exclusive Mode = iota + 1
	// Shared is a read lock.
	Shared
	// Permit is a part of a semaphore. Its tokens identify holds but do not order them.
	Permit
)

var modeNames = [...]string{Exclusive: "exclusive", Shared: "shared", Permit: "permit"}

// String returns "exclusive", "shared" or "permit".
func (m Mode) String() string {
	if m.valid() {
		return modeNames[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

func (m Mode) valid() bool { return m >= Exclusive && m <= Permit }

// ParseMode reads what [Mode.String] writes.
func ParseMode(s string) (Mode, error) {
	for m := Exclusive; m <= Permit; m++ {
		if modeNames[m] == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w mode %q", ErrInvalid, s)
}

// MarshalText writes [Mode.String].
func (m Mode) MarshalText() ([]byte, error) {
	if !m.valid() {
		return nil, fmt.Errorf("%w mode %d", ErrInvalid, int(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads what [Mode.String] writes.
func (m *Mode) UnmarshalText(b []byte) error {
	v, err := ParseMode(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}
