package fence

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestTokenTextFormIsCanonicalDecimal(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Token
	}{
		{"1", 1},
		{"4294967297", 1<<32 + 1},
		{"9223372036854775807", math.MaxInt64},
	} {
		got, err := ParseToken(tc.in)
		if expect.OK(t, err, "ParseToken(%q) = %v, %v", tc.in, got, err) {
			expect.Equal(t, got, tc.want, "ParseToken(%q) = %v, %v: got", tc.in, got, err)
			expect.Equal(t, got.String(), tc.in,
				"ParseToken(%q) = %v, %v: got.String()", tc.in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-1", "+1", "01", " 1", "1 ", "1e3", "0x10", "9223372036854775808",
		"1_000"} {
		if got, err := ParseToken(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseToken(%q) = %v, %v; want ErrInvalid", in, got, err)
		}
	}
}

// In JSON a token is a string. Otherwise readers that parse numbers as doubles would round tokens above 2^53.
func TestE65TokenAbove2To53KeepsItsValueInJSON(t *testing.T) {
	in := struct{ Token Token }{1<<53 + 1}
	b := must.Get(json.Marshal(in))(t)
	want := `{"Token":"9007199254740993"}`
	must.Equal(t, string(b), want, "JSON is %s", b)
	var loose map[string]any
	if err := json.Unmarshal(b, &loose); err != nil || loose["Token"] != "9007199254740993" {
		t.Fatalf("a reader without types sees %v, %v", loose, err)
	}
	out := in
	out.Token = 0
	err := json.Unmarshal(b, &out)
	must.That(t, err == nil && out == in, "back to %v, %v", out, err)
	must.Fails(t, json.Unmarshal([]byte(`{"Token":9007199254740993}`), &out),
		"a JSON number was accepted")
	s := Sequencer{Path: "/a", Node: "n", Mode: Exclusive, Token: in.Token}
	back := must.Get(ParseSequencer(s.String()))(t)
	must.Equal(t, back, s, "back")
}

func TestSequencerTextFormRoundTrips(t *testing.T) {
	for _, s := range []Sequencer{
		{"/", "n", Exclusive, 1},
		{"/jobs/nightly", "_c_0f0e-lock-0000000041", Exclusive, 8589934634},
		{"/sem", "leases/_c_x-lease-0000000001", Permit, math.MaxInt64},
		{"/pfad/Größe 100%", "r.s", Shared, 7},
	} {
		text := s.String()
		expect.That(t, !strings.ContainsAny(text, " \t\n/+="), "%q needs quoting", text)
		back, err := ParseSequencer(text)
		expect.That(t, err == nil && back == s, "%v came back as %v, %v", s, back, err)
		expect.That(t, !strings.Contains(s.NodePath(), "//"), "node path %q", s.NodePath())
	}
}

// The text of a sequencer is stored and sent between versions, so this form must stay.
func TestSequencerTextFormIsFixed(t *testing.T) {
	s := Sequencer{"/jobs/nightly", "lock-0000000041", Exclusive, 41}
	const want = "zl1.eAA0MQAvam9icy9uaWdodGx5AGxvY2stMDAwMDAwMDA0MQ.c6bc3815"
	must.Equal(t, s.String(), want)
}

func TestParseSequencerRefusesDamage(t *testing.T) {
	good := Sequencer{"/jobs/nightly", "lock-0000000041", Exclusive, 41}.String()
	for i := range good {
		for _, c := range []byte{'A', 'b', '.', '\n'} {
			bad := good[:i] + string(c) + good[i+1:]
			if bad == good {
				continue
			}
			if s, err := ParseSequencer(bad); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q was read as %v, %v", bad, s, err)
			}
		}
		if s, err := ParseSequencer(good[:i]); !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q was read as %v, %v", good[:i], s, err)
		}
	}
	for _, raw := range []string{"x\x00\x00/a\x00n", "x\x00x\x00/a\x00n", "x\x00-1\x00/a\x00n", "q\x0041\x00/a\x00n",
		"x\x0041\x00a\x00n", "x\x0041\x00/a\x00/n"} {
		body := prefix + base64.RawURLEncoding.EncodeToString([]byte(raw))
		bad := fmt.Sprintf("%s.%08x", body, crc32.ChecksumIEEE([]byte(body)))
		expect.Is(t, expect.Err(ParseSequencer(bad)), ErrInvalid, "ParseSequencer of %q", raw)
	}
	for _, s := range []Sequencer{
		{}, {"", "n", Exclusive, 1}, {"a", "n", Exclusive, 1}, {"/a", "", Exclusive, 1}, {"/a", "/n", Exclusive, 1},
		{"/a", "n", 0, 1}, {"/a", "n", 9, 1}, {"/a", "n", Shared, 0}, {"/a\x00", "n", Shared, 1},
		{"/" + strings.Repeat("a", maxNames), "n", Shared, 1},
	} {
		expect.Equal(t, s.String(), "", "invalid %v has text", s)
		expect.Is(t, expect.Err(s.MarshalText()), ErrInvalid, "MarshalText of invalid %v", s)
	}
}

func TestModeTextForm(t *testing.T) {
	for m := Exclusive; m <= Permit; m++ {
		b, err := json.Marshal(m)
		var back Mode
		if expect.OK(t, err, "%v", m) {
			expect.That(t, json.Unmarshal(b, &back) == nil,
				"%v: %s, %v: want json.Unmarshal(b, &back) == nil", m, b, err)
			expect.Equal(t, back, m, "%v: back", m)
		}
	}
	expect.Is(t, expect.Err(ParseMode("write")), ErrInvalid, "unknown mode accepted")
	expect.Fails(t, expect.Err(json.Marshal(Mode(0))), "zero mode has a text form")
}

func FuzzParseSequencer(f *testing.F) {
	f.Add(Sequencer{"/a", "n", Exclusive, 1}.String())
	f.Add("zl1..00000000")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSequencer(text)
		if err != nil {
			return
		}
		must.Equal(t, s.String(), text, "read as %v writes", s)
	})
}

func FuzzSequencerRoundTrip(f *testing.F) {
	f.Add("/a", "n", byte(1), int64(1))
	f.Fuzz(func(t *testing.T, path, node string, mode byte, token int64) {
		s := Sequencer{path, node, Mode(mode), Token(token)}
		text := s.String()
		if text == "" {
			return
		}
		back, err := ParseSequencer(text)
		must.That(t, err == nil && back == s, "%#v came back as %#v, %v", s, back, err)
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add("1")
	f.Add("9223372036854775807")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseToken(text); err == nil && (v.String() != text || !v.Valid()) {
			t.Fatalf("%q read as %d", text, v)
		}
	})
}

// An invalid token, mode or sequencer cannot be written or read.
func TestTextOfInvalidValuesIsRefused(t *testing.T) {
	for name, err := range map[string]error{
		"token":               expect.Err(Token(-1).MarshalText()),
		"mode":                expect.Err(Mode(9).MarshalText()),
		"sequencer":           expect.Err(Sequencer{}.MarshalText()),
		"text of a token":     new(Token).UnmarshalText([]byte("x")),
		"text of a mode":      new(Mode).UnmarshalText([]byte("x")),
		"text of a sequencer": new(Sequencer).UnmarshalText([]byte("x")),
	} {
		expect.That(t, errors.Is(err, ErrInvalid), "%s: %v", name, err)
	}
}

// A text with a valid checksum is refused if it does not have the four fields of a sequencer.
func TestParseSequencerWantsFourFields(t *testing.T) {
	text := func(fields ...string) string {
		body := prefix + base64.RawURLEncoding.EncodeToString([]byte(strings.Join(fields, "\x00")))
		return fmt.Sprintf("%s.%08x", body, crc32.ChecksumIEEE([]byte(body)))
	}
	want := Sequencer{"/a", "n", Exclusive, 7}
	got, err := ParseSequencer(text("x", "7", "/a", "n"))
	expect.That(t, got == want && err == nil, "%v, %v", got, err)
	for _, fields := range [][]string{
		{""}, {"x"}, {"x", "7", "/a"}, {"x", "7", "/a", "n", ""}, {"xx", "7", "/a", "n"}, {"", "7", "/a", "n"},
		{"x", "7", "/a", ""},
	} {
		got, err := ParseSequencer(text(fields...))
		expect.That(t, got == Sequencer{} && errors.Is(err, ErrInvalid), "%q is read as %v, %v", fields, got, err)
	}
}

// A sequencer with names of the greatest length has a text form. The token zero, which means that there is no
// token, has one as well.
func TestLongestNamesAndAbsentTokens(t *testing.T) {
	s := Sequencer{"/" + strings.Repeat("a", maxNames-2), "n", Shared, 1}
	var back Sequencer
	err := json.Unmarshal(must.Get(json.Marshal(s))(t), &back)
	if expect.OK(t, err) {
		expect.Equal(t, back, s, "back")
	}
	s.Node += "n"
	expect.Equal(t, s.String(), "")
	token := Token(5)
	err = json.Unmarshal(must.Get(json.Marshal(Token(0)))(t), &token)
	expect.That(t, err == nil && token == 0, "%d, %v", token, err)
}
