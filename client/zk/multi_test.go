package zk

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

// An answer with fewer results than the multi has operations is no answer.
func TestAnswerOfAMultiThatEndsEarly(t *testing.T) {
	for _, answer := range [][]byte{nil, jute.AppendMultiHeader(nil, -1, true, -1)} {
		d := jute.NewDecoder(answer)
		results, err := readMulti(&d, "", make([]Op, 1))
		expect.That(t, err == jute.ErrShort && results == nil, "%x: %v, %v", answer, results, err)
	}
}
