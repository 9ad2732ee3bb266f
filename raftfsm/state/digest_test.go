package state

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// A server that misses changes numbers all later ones too low. Its digests are
// then never those of the zxid the leader speaks of; that it is behind at this
// place of the log tells as much.
func TestF3ServerThatMissedAChangeStops(t *testing.T) {
	b := newBench(t)
	s := b.session()
	for len(b.s.Digests()) == 0 {
		b.do(create(s, "/n-", 2))
	}
	at := func(zxid int64) []byte {
		body := binary.BigEndian.AppendUint64(nil, uint64(zxid))
		r := Request{Op: OpDigest, Body: binary.BigEndian.AppendUint64(body, 7)}
		return one(Block{Count: 1, Requests: r.Append(nil)})
	}
	expect.OK(t, b.apply(at(b.s.Zxid()-1)), "a zxid of which no digest is kept")
	if err := b.apply(at(b.s.Zxid() + 1)); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("a zxid that this server has not reached: %v", err)
	}
}
