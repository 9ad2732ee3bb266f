package recipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/race"
)

// A record of just the longest length stays whole.
func TestRecordsOfTheLongestLength(t *testing.T) {
	short := len(EncodeOwner(Owner{Host: "h"}))
	o := Owner{Host: "h" + strings.Repeat("o", MaxOwnerData-short)}
	got, ok := ParseOwner(EncodeOwner(o))
	if expect.That(t, ok, "%d bytes: want ok", len(EncodeOwner(o))) {
		expect.Equal(t, got.Host, o.Host, "%d bytes: got.Host", len(EncodeOwner(o)))
		expect.Equal(t, len(EncodeOwner(o)), MaxOwnerData,
			"%d bytes: len(EncodeOwner(o))", len(EncodeOwner(o)))
	}
	o.Host += "o"
	got, ok = ParseOwner(EncodeOwner(o))
	if expect.That(t, ok, "%d bytes: want ok", len(EncodeOwner(o))) {
		expect.That(t, len(got.Host) < len(o.Host),
			"%d bytes: want len(got.Host) < len(o.Host)", len(EncodeOwner(o)))
	}

	record := `{"zl":1,"policy":"` + strings.Repeat("p", 20) + `"}`
	room := 2*MaxOwnerData - len(record)
	for spaces, want := range map[int]bool{room: true, room + 1: false} {
		_, ok := ParseRecord([]byte(record + strings.Repeat(" ", spaces)))
		expect.Equal(t, ok, want, "a record with %d spaces is read", spaces)
	}
	_, ok = ParseRecord([]byte(`{"zl":1,"policy":"` + strings.Repeat("p", 21) + `"}`))
	expect.That(t, !ok, "the name of a policy has 21 letters")
	expect.Equal(t, LimitOf(string(Record{Limit: 3}.Encode())), 3)
}

// A wish always finds room: fields of other versions give way to it, and long texts of the wish are cut.
func TestAskBackHasRoomForTheWish(t *testing.T) {
	race.Alone(t)
	long := Revocation{By: strings.Repeat("b", 1000), Reason: strings.Repeat("r", 1000)}
	r, asked := RevocationIn(AskBack(EncodeOwner(Owner{Host: "h"}), MakerSelf, long))
	expect.That(t, asked,
		"%v: %d and %d bytes: want asked", asked, len(r.By), len(r.Reason))
	if expect.Equal(t, len(r.By), 100, "%v: len(r.By)", asked) {
		expect.Equal(t, len(r.Reason), 200, "%v: len(r.Reason)", asked)
	}

	var kept []int // lengths of data that keep the field of another version
	for pad := MaxOwnerData; pad < 2*MaxOwnerData-len(`{"v":1,"host":"h","new":""}`); pad++ {
		record := `{"v":1,"host":"h","new":"` + strings.Repeat("n", pad) + `"}`
		data := AskBack([]byte(record), MakerSelf, Revocation{By: "ann"})
		r, asked := RevocationIn(data)
		expect.That(t, asked, "field of %d: %v in %d bytes: want asked", pad, r, len(data))
		expect.Equal(t, r.By, "ann", "field of %d: r.By", pad)
		expect.That(t, len(data) <= 2*MaxOwnerData,
			"field of %d: %v in %d bytes: want len(data) <= 2*MaxOwnerData", pad, r, len(data))
		if strings.Contains(string(data), `"new"`) {
			kept = append(kept, len(data))
		}
	}
	if expect.That(t, len(kept) > 0, "%v: want len(kept) > 0", kept) {
		expect.Equal(t, slices.Max(kept), 2*MaxOwnerData, "slices.Max(kept)")
	}
	_, asked = RevocationIn([]byte(`{"v":1,"host":"h","new":"revoke"}`))
	expect.That(t, !asked, "a word in another field asks")
}

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
	expect.Equal(t, ReadGrant(id, false), GrantTxn{Create: PolicyNode{ID: id, Kind: HoldRead}})
	expect.Equal(t, ReadGrant(id, true), GrantTxn{Create: PolicyNode{ID: id, Kind: HoldRead},
		Delete: PolicyNode{ID: id, Kind: QueueRead}})
}
