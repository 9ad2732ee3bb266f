package recipe

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/race"
)

// An owner's record is cut until it fits: the reason first, and no rune in two.
func TestLongOwnersAreCut(t *testing.T) {
	long := strings.Repeat("ü", MaxOwnerData)
	for _, o := range []Owner{{Host: "h", Reason: long}, {Host: "h", Reason: long, Cmd: long, Task: long},
		{Host: long, Reason: "r"}, {Host: "h", Client: long}} {
		b := EncodeOwner(o)
		got, ok := ParseOwner(b)
		kept := got.Reason + got.Cmd + got.Task + got.Host
		if expect.That(t, ok, "%q: want ok", b) {
			if expect.That(t, len(b) <= MaxOwnerData, "%q: want len(b) <= MaxOwnerData", b) {
				expect.Equal(t, strings.Trim(kept, "hü"), "")
			}
		}
		expect.That(t, o.Client != "" || len(b) > MaxOwnerData-8 && (o.Host == long || got.Host == o.Host),
			"%d bytes are left: %q", len(b), b)
	}
}

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
		expect.Equal(t, ok, c.want, "%s: ok", name)
		expect.That(t, !ok || o.Host == "h",
			"%s: %v, %+v: want !ok || o.Host == \"h\"", name, ok, o)
	}
}

// A value and the record behind it are told apart, whatever is in the value.
func TestValueBeforeARecord(t *testing.T) {
	for _, value := range []string{"", "v", "a\x00b"} {
		data := EncodeValue([]byte(value), Owner{Host: "h"})
		got, asked := ValueOf(data)
		expect.Equal(t, string(got), value, "%q of %q: string(got)", got, data)
		expect.That(t, !asked, "%q of %q: want !asked", got, data)
		other := WithValue(data, []byte("other"))
		o, ok := ParseOwner(other)
		if expect.That(t, ok, "%q: want ok", other) {
			expect.Equal(t, o.Host, "h", "o.Host")
			expect.That(t, bytes.HasPrefix(other, []byte("other\x00{")),
				"%q: want bytes.HasPrefix(other, []byte(\"other\\x00{\"))", other)
		}
		expect.Equal(t, string(WithValue([]byte(value), []byte("w"))), "w")
		e := Entry{raw: string(data)}
		e.Tell()
		expect.Equal(t, e.Data, value, "e.Data")
		if expect.That(t, e.Owner != nil, "%+v: want e.Owner != nil", e) {
			expect.Equal(t, e.Owner.Host, "h", "e.Owner.Host")
		}
		asking := AskBack([]byte(value), MakerSelf, Revocation{})
		got, asked = ValueOf(asking)
		expect.Equal(t, string(got), value, "%q of %q: string(got)", got, asking)
		expect.That(t, asked, "%q of %q: want asked", got, asking)
	}
	e := Entry{raw: strings.Repeat("x", shownData-1) + "ü"}
	e.Tell()
	expect.That(t, e.Owner == nil, "%q is shown: want e.Owner == nil", e.Data)
	expect.Equal(t, len(e.Data), shownData-1, "%q is shown: len(e.Data)", e.Data)
}

// A holder notes in its record that its time is over, and nothing else changes.
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

// A revocation leaves fields alone that this version does not know.
func TestAskBackKeepsTheRecord(t *testing.T) {
	data := AskBack([]byte(`value`+"\x00"+`{"v":1,"host":"h","new":5}`), MakerSelf, Revocation{By: "ann"})
	r, asked := RevocationIn(data)
	expect.That(t, asked, "%q: want asked", data)
	expect.Equal(t, r.By, "ann", "r.By")
	expect.That(t, strings.HasPrefix(string(data), "value\x00{"),
		"%q: want strings.HasPrefix(string(data), \"value\\x00{\")", data)
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
