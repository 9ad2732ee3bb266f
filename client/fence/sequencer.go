package fence

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"
)

// Sequencer describes one hold of a lock to a third party: the lock, the node, the mode and the
// token. It is not a secret and proves nothing by itself; the third party asks a [Gate] or a
// [Checker].
type Sequencer struct {
	// Path is the path of the lock, as the holder's client named it: absolute, without the client's chroot.
	Path string `json:"path"`
	// Node is the node of the hold, relative to Path: one name in most layouts, and "leases/NAME" for a
	// semaphore.
	Node string `json:"node"`
	// Mode is the mode of the hold.
	Mode Mode `json:"mode"`
	// Token is the token of the hold.
	Token Token `json:"token"`
}

// Checker asks the lock server whether a hold is current. Check returns nil if it is current, [ErrStale] if
// it is over, and another error if the server did not answer.
type Checker interface {
	CheckSequencer(ctx context.Context, s Sequencer) error
}

// prefix is the version of the text form.
const prefix = "zl1."

// maxNames bounds Path and Node together. It is more than any real path needs, and the text form still fits
// into a header line or an environment variable.
const maxNames = 4 << 10

// maxText bounds the text form of a sequencer; it follows from maxNames.
const maxText = 2 * maxNames

var modeLetters = [...]byte{Exclusive: 'x', Shared: 's', Permit: 'p'}

// String returns the text form zl1.BASE64URL.CRC. The checksum detects truncated and mistyped copies, but not
// forgeries. For an invalid s it returns "".
func (s Sequencer) String() string {
	if s.validate() != nil {
		return ""
	}
	raw := strings.Join([]string{string(modeLetters[s.Mode]), s.Token.String(), s.Path, s.Node}, "\x00")
	body := prefix + base64.RawURLEncoding.EncodeToString([]byte(raw))
	return fmt.Sprintf("%s.%08x", body, crc32.ChecksumIEEE([]byte(body)))
}

// NodePath returns the absolute path of the hold's node.
func (s Sequencer) NodePath() string {
	return strings.TrimSuffix(s.Path, "/") + "/" + s.Node
}

// ParseSequencer reads the text form.
func ParseSequencer(text string) (Sequencer, error) {
	bad := func(why string) (Sequencer, error) {
		return Sequencer{}, fmt.Errorf("%w sequencer: %s", ErrInvalid, why)
	}
	if len(text) > maxText {
		return bad("too long")
	}
	if !strings.HasPrefix(text, prefix) {
		return bad("does not begin with " + prefix)
	}
	dot := strings.LastIndexByte(text, '.')
	if dot < len(prefix) {
		return bad("no checksum")
	}
	body, sum := text[:dot], text[dot+1:]
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) != sum {
		return bad("wrong checksum")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body[len(prefix):])
	if err != nil {
		return bad("not base64url")
	}
	f := strings.Split(string(raw), "\x00")
	if len(f) != 4 || len(f[0]) != 1 {
		return bad("not four fields")
	}
	s := Sequencer{Path: f[2], Node: f[3]}
	for m := Exclusive; m <= Permit; m++ {
		if modeLetters[m] == f[0][0] {
			s.Mode = m
		}
	}
	if s.Token, err = ParseToken(f[1]); err != nil {
		return Sequencer{}, err
	}
	if err := s.validate(); err != nil {
		return Sequencer{}, err
	}
	// The decoder accepts line ends inside the text. Refuse them, because a sequencer has only one spelling.
	if s.String() != text {
		return bad("not in its canonical form")
	}
	return s, nil
}

// MarshalText writes the text form, so that a sequencer is one string in JSON.
func (s Sequencer) MarshalText() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the text form.
func (s *Sequencer) UnmarshalText(b []byte) error {
	v, err := ParseSequencer(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

func (s Sequencer) validate() error {
	switch {
	case !s.Mode.valid():
		return fmt.Errorf("%w sequencer: no mode", ErrInvalid)
	case !s.Token.Valid():
		return fmt.Errorf("%w sequencer: no token", ErrInvalid)
	case !strings.HasPrefix(s.Path, "/"):
		return fmt.Errorf("%w sequencer: path %q is not absolute", ErrInvalid, s.Path)
	case s.Node == "" || strings.HasPrefix(s.Node, "/"):
		return fmt.Errorf("%w sequencer: node %q is empty or begins with /", ErrInvalid, s.Node)
	case strings.Contains(s.Path, "\x00") || strings.Contains(s.Node, "\x00"):
		return fmt.Errorf("%w sequencer: a name contains a zero byte", ErrInvalid)
	case len(s.Path)+len(s.Node) > maxNames:
		return fmt.Errorf("%w sequencer: the path and the name of the node are too long", ErrInvalid)
	}
	return nil
}
