package golden

import (
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:embed testdata/*.json
var files embed.FS

// Vector is one recorded exchange.
type Vector struct {
	Theme       string `json:"-"`
	Name        string
	Profile     string
	Description string
	Steps       []Step
}

// ID names the vector among all vectors.
func (v *Vector) ID() string { return v.Theme + "/" + v.Name }

// Step is one action or expected frame. The field `Do` decides which fields count; see testdata/README.md.
type Step struct {
	Do         string
	Conn       string
	Hex        *string
	HexCompact []run `json:"hex_compact"`
	Ms         int
	Volatile   []Range
	Decoded    Decoded
}

// Range marks bytes of a frame that differ between servers.
type Range struct {
	Off, Len        int
	Kind, Rule, Sym string
}

// Decoded is what the replay needs to know about the meaning of a frame.
type Decoded struct {
	Xid  *int32
	Op   string
	Path string
	Ops  []struct{ Op, Path string }
}

// run is a piece of a long frame: literal bytes, or one byte many times.
type run struct {
	literal string
	Repeat  string
	Count   int
}

// UnmarshalJSON reads a string of hex digits or a {repeat, count} object.
func (r *run) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, &r.literal)
	}
	type plain run
	return json.Unmarshal(b, (*plain)(r))
}

// bytes() returns the frame of a send, recv or recv_raw.
func (s *Step) bytes() []byte {
	var text strings.Builder
	if s.Hex != nil {
		text.WriteString(*s.Hex)
	}
	for _, r := range s.HexCompact {
		text.WriteString(r.literal)
		text.WriteString(strings.Repeat(r.Repeat, r.Count))
	}
	b, err := hex.DecodeString(text.String())
	if err != nil {
		panic("golden: bad hex in test data: " + err.Error())
	}
	return b
}

// Load returns all vectors of a profile: those of theme fresh first, the other
// themes in alphabetical order.
func Load(profile string) ([]Vector, error) {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var list []Vector
	for _, e := range entries {
		b, err := files.ReadFile("testdata/" + e.Name())
		if err != nil {
			return nil, err
		}
		var f struct {
			Format  int
			Theme   string
			Vectors []Vector
		}
		if err := json.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		if f.Format != 1 {
			return nil, fmt.Errorf("%s: format %d is unknown", e.Name(), f.Format)
		}
		for _, v := range f.Vectors {
			v.Theme = f.Theme
			if v.Profile == profile {
				list = append(list, v)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Vector) int {
		return fresh(b) - fresh(a)
	})
	return list, nil
}

func fresh(v Vector) int {
	if v.Theme == "fresh" {
		return 1
	}
	return 0
}
