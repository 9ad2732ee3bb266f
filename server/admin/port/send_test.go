package port

import (
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Answers being sent take a limited amount of memory, in total and per address.
func TestOutgoingIsBounded(t *testing.T) {
	const step = 1 << 20
	var o Outgoing
	n := 0
	for o.take("a", step) {
		n += step
	}
	expect.Equal(t, n, maxOutgoingAddr, "bytes for one address")
	for i := 0; o.take(fmt.Sprint(i), maxOutgoingAddr); i++ {
		n += maxOutgoingAddr
	}
	expect.Equal(t, n, maxOutgoing, "bytes in all")
	expect.Is(t, o.Send("1.2.3.4:5", 1, func() error { return nil }), error(ErrBusy))
	o.give("a", maxOutgoingAddr)
	expect.OK(t, o.Send("1.2.3.4:5", maxOutgoingAddr, func() error { return nil }))
	expect.Equal(t, o.all, maxOutgoing-maxOutgoingAddr, "after an answer")
}
