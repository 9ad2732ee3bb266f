package recipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// An owner record that is too long is shortened: the reason first, and never in the middle of a rune.
func TestLongOwnersAreCut(t *testing.T) {
	long := strings.Repeat("ü", MaxOwnerData)
	for _, o := range []Owner{{Host: "h", Reason: long}, {Host: "h", Reason: long, Cmd: long, Task: long},
		{Host: long, Reason: "r"}, {Host: "h", Client: long}} {
		b := EncodeOwner(o)
		got, ok := ParseOwner(b)
		kept := got.Reason + got.Cmd + got.Task + got.Host
		expect.That(t, ok, "no record is read from %q", b)
		expect.That(t, len(b) <= MaxOwnerData, "%d bytes, want at most %d", len(b), MaxOwnerData)
		expect.Equal(t, strings.Trim(kept, "hü"), "", "halves of runes in %q", b)
		if o.Client != "" {
			continue // such a record loses all of its fields, so it is shorter
		}
		expect.That(t, len(b) > MaxOwnerData-8, "%d bytes, want more than %d", len(b), MaxOwnerData-8)
		if o.Host != long {
			expect.Equal(t, got.Host, o.Host, "the host in %q", b)
		}
	}
}

// A record of exactly the maximum length is not shortened.
func TestRecordsOfTheLongestLength(t *testing.T) {
	short := len(EncodeOwner(Owner{Host: "h"}))
	o := Owner{Host: "h" + strings.Repeat("o", MaxOwnerData-short)}
	got, ok := ParseOwner(EncodeOwner(o))
	expect.That(t, ok, "a record of the longest length is not read")
	expect.Equal(t, got.Host, o.Host, "the host in a record of the longest length")
	expect.Equal(t, len(EncodeOwner(o)), MaxOwnerData, "the longest length")
	o.Host += "o"
	got, ok = ParseOwner(EncodeOwner(o))
	expect.That(t, ok, "a record that was cut is not read")
	expect.That(t, len(got.Host) < len(o.Host), "the host has %d bytes, want less than %d", len(got.Host),
		len(o.Host))

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

func TestOwnerIsAShortRecord(t *testing.T) {
	record := func(size int) string {
		const begin, end = `{"v":1,"host":"h","reason":"`, `"}`
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"nothing":  {"", false},
		"text":     {"host 1", false},
		"a list":   {"[1]", false},
		"indented": {" " + record(100), false},
		"version":  {`{"v":2}`, false},
		"short":    {record(100), true},
		"longest":  {record(2 * MaxOwnerData), true},
		"longer":   {record(2*MaxOwnerData + 1), false},
	} {
		o, ok := (&Entry{raw: c.data}).Record()
		expect.Equal(t, ok, c.want, "%s: that a record is read", name)
		if ok {
			expect.Equal(t, o.Host, "h", "%s: the host", name)
		}
	}
}

// A value and the record after it are told apart, whatever the value contains.
func TestValueBeforeARecord(t *testing.T) {
	for _, value := range []string{"", "v", "a\x00b"} {
		data := EncodeValue([]byte(value), Owner{Host: "h"})
		got, asked := ValueOf(data)
		expect.Equal(t, string(got), value, "the value in %q", data)
		expect.That(t, !asked, "%q asks to leave", data)
		other := WithValue(data, []byte("other"))
		o, ok := ParseOwner(other)
		expect.That(t, ok, "no record is read from %q", other)
		expect.Equal(t, o.Host, "h", "the host in %q", other)
		before, _, _ := strings.Cut(string(other), "{")
		expect.Equal(t, before, "other\x00", "what precedes the record")
		expect.Equal(t, string(WithValue([]byte(value), []byte("w"))), "w")
		e := Entry{raw: string(data)}
		e.Tell()
		expect.Equal(t, e.Data, value, "the data that an entry shows")
		if expect.That(t, e.Owner != nil, "an entry shows no record of %q", data) {
			expect.Equal(t, e.Owner.Host, "h", "the host that an entry shows")
		}
		asking := AskBack([]byte(value), MakerSelf, Revocation{})
		got, asked = ValueOf(asking)
		expect.Equal(t, string(got), value, "the value in %q", asking)
		expect.That(t, asked, "%q does not ask to leave", asking)
	}
	e := Entry{raw: strings.Repeat("x", shownData-1) + "ü"}
	e.Tell()
	expect.That(t, e.Owner == nil, "an entry shows the record %+v of data without one", e.Owner)
	expect.Equal(t, len(e.Data), shownData-1, "the length of %q", e.Data)
}

// A holder whose maximum hold is over notes this in its record, and changes nothing else.
func TestMarkOver(t *testing.T) {
	record := EncodeOwner(Owner{Host: "h", MaxHold: "3s"})
	over := EncodeOwner(Owner{Host: "h", MaxHold: "3s", Over: true})
	for name, c := range map[string]struct{ data, want string }{
		"record":           {string(record), string(over)},
		"record and value": {"v\x00" + string(record), "v\x00" + string(over)},
		"noted":            {string(over), ""},
		"value":            {"v", ""},
		"nothing":          {"", ""},
	} {
		t.Run(name, func(t *testing.T) { expect.Equal(t, string(MarkOver([]byte(c.data))), c.want) })
	}
}

// A request to leave always fits into the record. If there is no room, fields of other versions are dropped,
// and long texts of the request are shortened.
func TestAskBackHasRoomForTheWish(t *testing.T) {
	race.Alone(t)
	long := Revocation{By: strings.Repeat("b", 1000), Reason: strings.Repeat("r", 1000)}
	r, asked := RevocationIn(AskBack(EncodeOwner(Owner{Host: "h"}), MakerSelf, long))
	expect.That(t, asked, "a record with a long wish does not ask")
	expect.Equal(t, len(r.By), 100, "the length of the asker's name")
	expect.Equal(t, len(r.Reason), 200, "the length of the reason")

	var kept []int // lengths of the data for which AskBack keeps the field of another version
	for pad := MaxOwnerData; pad < 2*MaxOwnerData-len(`{"v":1,"host":"h","new":""}`); pad++ {
		record := `{"v":1,"host":"h","new":"` + strings.Repeat("n", pad) + `"}`
		data := AskBack([]byte(record), MakerSelf, Revocation{By: "ann"})
		r, asked := RevocationIn(data)
		expect.That(t, asked, "beside a field of %d bytes nobody is asked", pad)
		expect.Equal(t, r.By, "ann", "the asker beside a field of %d bytes", pad)
		expect.That(t, len(data) <= 2*MaxOwnerData, "%d bytes beside a field of %d, want at most %d",
			len(data), pad, 2*MaxOwnerData)
		if strings.Contains(string(data), `"new"`) {
			kept = append(kept, len(data))
		}
	}
	must.That(t, len(kept) > 0, "no record keeps the field of another version")
	expect.Equal(t, slices.Max(kept), 2*MaxOwnerData, "the longest record that keeps the field")
	_, asked = RevocationIn([]byte(`{"v":1,"host":"h","new":"revoke"}`))
	expect.That(t, !asked, "a word in another field asks")
}

// A revocation does not change fields of the record that this version does not know.
func TestAskBackKeepsTheRecord(t *testing.T) {
	data := AskBack([]byte(`value`+"\x00"+`{"v":1,"host":"h","new":5}`), MakerSelf, Revocation{By: "ann"})
	r, asked := RevocationIn(data)
	expect.That(t, asked, "%q does not ask to leave", data)
	expect.Equal(t, r.By, "ann", "the asker")
	before, _, _ := strings.Cut(string(data), "{")
	expect.Equal(t, before, "value\x00", "what precedes the record")
	expect.Has(t, string(data), `"new":5`)
}

func TestCutTextEndsAtARune(t *testing.T) {
	for _, c := range []struct {
		n    int
		want string
	}{{-1, ""}, {0, ""}, {1, "a"}, {2, "a"}, {3, "aé"}, {4, "aé"}, {5, "aé"}, {6, "aé€"}, {7, "aé€"}} {
		expect.Equal(t, CutText("aé€", c.n), c.want, "at most %d bytes", c.n)
	}
	expect.Equal(t, CutText("\x80\x80", 1), "", "no rune begins before the end")
}
