package peer

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The longest block passes a link; one that would not be read there is not sent.
func TestLongestBlockPassesALink(t *testing.T) {
	for _, off := range []int{-1, 0, 1} {
		bl := state.Block{Origin: 1, Birth: 1, First: 1, Requests: make([]byte, state.MaxRequest+off)}
		payload := bl.Append(nil)
		var wire bytes.Buffer
		w := bufio.NewWriter(&wire)
		err := WriteMessage(w, LinkBlock, payload)
		expect.Equal(t, err != nil, off > 0, "%+d: %v", off, err)
		if err != nil {
			continue
		}
		must.OK(t, w.Flush())
		typ, got, err := ReadMessage(bufio.NewReader(&wire))
		expect.That(t, err == nil && typ == LinkBlock && bytes.Equal(got, payload),
			"%+d: type %d, %d bytes, %v", off, typ, len(got), err)
	}
}
