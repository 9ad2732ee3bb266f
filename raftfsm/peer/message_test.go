package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What comes over a link is whole, or it is an error.

func TestMessagesCutShortAreErrors(t *testing.T) {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	must.OK(t, errors.Join(WriteMessage(w, LinkBlock, []byte("payload")), w.Flush()))
	whole := b.Bytes()
	for n := range whole {
		if _, _, err := ReadMessage(bufio.NewReader(bytes.NewReader(whole[:n]))); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(whole))
		}
	}
	typ, payload, err := ReadMessage(bufio.NewReader(bytes.NewReader(whole)))
	expect.That(t, err == nil && typ == LinkBlock && string(payload) == "payload",
		"read back as %d %q, %v", typ, payload, err)
	huge := binary.BigEndian.AppendUint32([]byte{LinkBlock}, MaxMessage+1)
	if _, _, err := ReadMessage(bufio.NewReader(bytes.NewReader(huge))); err == nil ||
		!strings.Contains(err.Error(), "message of") {
		t.Errorf("a message larger than any: %v", err)
	}
	full := bufio.NewWriterSize(refusing{}, 16)
	expect.Fails(t, errors.Join(WriteMessage(full, LinkBlock, make([]byte, 100))),
		"a message that could not be written")
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("no") }

func TestTouchesAndAcksHaveTheirLength(t *testing.T) {
	touches := Touches{Number: 5, Applied: 6, Heard: []state.Touch{{Session: 7, Age: 8}, {Session: -9, Age: 10}}}
	whole := touches.Append(nil)
	for n := range len(whole) + 13 {
		b := append(bytes.Clone(whole), make([]byte, 13)...)[:n]
		got, err := ParseTouches(b)
		expect.Equal(t, n >= 16 && (n-16)%12 == 0, err == nil,
			"touches of %d bytes: %+v, %v", n, got, err)
	}
	got, err := ParseTouches(whole)
	if err != nil || got.Number != 5 || got.Applied != 6 || len(got.Heard) != 2 ||
		got.Heard[0] != touches.Heard[0] || got.Heard[1] != touches.Heard[1] {
		t.Errorf("read back as %+v, %v", got, err)
	}
	ack := Ack{Number: 3, Applied: 4}.Append(nil)
	for n := range len(ack) + 2 {
		b := append(bytes.Clone(ack), 0)[:min(n, len(ack)+1)]
		if _, err := ParseAck(b); (err == nil) != (len(b) == 16) {
			t.Errorf("an ack of %d bytes: %v", len(b), err)
		}
	}
	if got, err := ParseAck(ack); err != nil || got != (Ack{3, 4}) {
		t.Errorf("read back as %+v, %v", got, err)
	}
}

func TestAnswersAndQuestionsCutShortAreErrors(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, writeAnswer(&b, errors.New("not now")))
	refusal := b.Bytes()
	for n := range refusal {
		if err := readAnswer(bytes.NewReader(refusal[:n])); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%d of %d bytes of a refusal: %v", n, len(refusal), err)
		}
	}
	if err := readAnswer(bytes.NewReader(refusal)); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "not now") {
		t.Errorf("a refusal: %v", err)
	}
	expect.OK(t, readAnswer(bytes.NewReader([]byte{0})), "consent")
	b.Reset()
	must.OK(t, writeJSON(&b, &Greeting{From: 7}))
	whole := b.Bytes()
	for n := range whole {
		var g Greeting
		expect.Fails(t, readJSON(bytes.NewReader(whole[:n]), &g),
			"%d of %d bytes of a greeting were taken", n, len(whole))
	}
	var g Greeting
	if err := readJSON(bytes.NewReader(whole), &g); err != nil || g.From != 7 {
		t.Errorf("a greeting: %+v, %v", g, err)
	}
	if err := readJSON(bytes.NewReader([]byte{0, 16, 0, 1}), &g); err == nil ||
		!strings.Contains(err.Error(), "message of") {
		t.Errorf("a greeting larger than any: %v", err)
	}
}
