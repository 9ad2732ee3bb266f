package recipe

import (
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// The mark of a closed door names its owner and the reason.
func TestMarksOfADoor(t *testing.T) {
	id := NewID(1, 2)
	for _, g := range []Door{{id, DoorWrite}, {id, DoorUpgrade}, {}} {
		expect.Equal(t, NewPolicyRecord(PolicyFair, 0).WithDoor(g).Mark(), g)
	}
	text := id.UUID()
	expect.Equal(t, Record{Door: &text}.Mark(), Door{}, "a mark without a reason")
	for n, want := range map[PolicyNode][2]string{
		{ID: id, Kind: QueueRead, Seq: 7}:  {"q-" + text + "-R-", "q-" + text + "-R-0000000007"},
		{ID: id, Kind: QueueWrite, Seq: 7}: {"q-" + text + "-W-", "q-" + text + "-W-0000000007"},
		{ID: id, Kind: HoldRead}:           {"h-" + text + "-R", "h-" + text + "-R"},
		{ID: id, Kind: HoldWrite}:          {"h-" + text + "-W", "h-" + text + "-W"},
	} {
		expect.Equal(t, [2]string{n.Name(false), n.Name(true)}, want)
	}
}

// An unreadable mark in the record of a policy lock counts as no mark. A missing or negative bound counts as
// the default bound.
func TestPolicyRecordsThatAreOdd(t *testing.T) {
	id := NewID(1, 2)
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		r    Record
		want Door
	}{
		{Record{Door: text(id.UUID()), Kind: "w"}, Door{id, DoorWrite}},
		{Record{Door: text(id.UUID()), Kind: "u"}, Door{id, DoorUpgrade}},
		{Record{Door: text(id.UUID()), Kind: "x"}, Door{}},
		{Record{Door: text(id.Hex()), Kind: "w"}, Door{}},
		{Record{Door: text(id.Hex()), Kind: "u"}, Door{}},
		{Record{Kind: "u"}, Door{}},
	} {
		expect.Equal(t, c.r.Mark(), c.want, "%+v", c.r)
	}
	for wait, want := range map[string]time.Duration{"3s": 3 * time.Second, "0s": 0, "-1s": DefaultMaxWriterWait,
		"": DefaultMaxWriterWait} {
		expect.Equal(t, Record{MaxWriterWait: wait}.WriterBound(), want, "%q", wait)
	}
	_, ok := ParsePolicyRecord(Record{Limit: 3}.Encode())
	expect.That(t, !ok, "the record of a semaphore is one of a policy")
	open := NewPolicyRecord(PolicyFair, time.Second).WithDoor(Door{id, DoorWrite}).WithDoor(Door{})
	expect.Equal(t, *open.Door, "", "the door's owner")
	expect.Equal(t, open.Kind, "", "why the door is closed")
	expect.Equal(t, open.Policy, "fair", "the policy")
	policy := PolicyNode{ID: id, Kind: QueueRead, Seq: 4}
	nodes, err := ParsePolicyNodes([]string{policy.Name(true), "notes"})
	expect.OK(t, err)
	expect.List(t, nodes, []PolicyNode{policy}, "the nodes of contenders")
	_, err = ParsePolicyNodes([]string{policy.Name(true), "lock-0000000001"})
	expect.Is(t, err, ErrMixedLayout)
}

func TestRecordsAreBounded(t *testing.T) {
	record := `{"zl":1,"holder":""}`
	_, short := ParseRecord([]byte(record))
	_, long := ParseRecord([]byte(record + strings.Repeat(" ", 2*MaxOwnerData)))
	expect.That(t, short, "a record is not read")
	expect.That(t, !long, "a record that is too long is read")
}
