package jute

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	return b
}

// Each field has exactly the bytes that clients send and expect.
func TestFieldsOnTheWire(t *testing.T) {
	stat := Stat{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"bool", AppendBool(AppendBool(nil, true), false), "01 00"},
		{"int", AppendInt(nil, -2), "fffffffe"},
		{"long", AppendLong(nil, math.MinInt64), "8000000000000000"},
		{"buffer", AppendBuffer(nil, []byte("ab")), "00000002 6162"},
		{"empty buffer", AppendBuffer(nil, []byte{}), "00000000"},
		{"null buffer", AppendBuffer(nil, nil), "ffffffff"},
		{"string", AppendString(nil, "/é"), "00000003 2fc3a9"},
		{"strings", AppendStrings(nil, []string{"a", ""}), "00000002 00000001 61 00000000"},
		{"acl", AppendACL(nil, WorldAnyone), "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"},
		{"stat", AppendStat(nil, &stat), "0000000000000001 0000000000000002 0000000000000003 0000000000000004" +
			"00000005 00000006 00000007 0000000000000008 00000009 0000000a 000000000000000b"},
		{"reply header", AppendReplyHeader(nil, -2, 0x100000003, NoNode), "fffffffe 0000000100000003 ffffff9b"},
		{"multi header", AppendMultiHeader(nil, OpError, true, RuntimeInconsistency), "ffffffff 01 fffffffe"},
		{"event", AppendEventFrame(nil, 9, EventDeleted, "/a"),
			"0000001e ffffffff 0000000000000009 00000000 00000002 00000003 00000002 2f61"},
		{"connect response", AppendConnectResponse(nil, 4000, 0x1ff, [16]byte{15: 7}, true, false),
			"00000025 00000000 00000fa0 00000000000001ff 00000010 00000000000000000000000000000007 00"},
		{"connect response of old", AppendConnectResponse(nil, 0, 0, [16]byte{}, false, false),
			"00000024 00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000"},
	} {
		if want := unhex(t, c.want); !bytes.Equal(c.got, want) {
			t.Errorf("%s: % x, want % x", c.name, c.got, want)
		}
	}
	n := len(AppendStat(nil, &stat))
	expect.Equal(t, n, StatSize, "a stat is %d bytes long, StatSize says", n)
}

func TestEveryFieldIsReadBack(t *testing.T) {
	stat := Stat{1, -2, 3, 4, 5, -6, 7, -8, 9, 10, math.MaxInt64}
	acl := []ACL{{PermRead, ID{"ip", "10.0.0.0/8"}}, {PermAll, ID{"digest", ""}}}
	var b []byte
	b = AppendBool(b, true)
	b = append(b, 200)
	b = AppendInt(b, math.MinInt32)
	b = AppendLong(b, math.MaxInt64)
	b = AppendBuffer(b, nil)
	b = AppendBuffer(b, []byte{})
	b = AppendString(b, "päth")
	b = AppendStrings(b, []string{"x", "", "z"})
	b = AppendACL(b, acl)
	b = AppendStat(b, &stat)
	d := NewDecoder(b)
	check := func(name string, got, want any) {
		t.Helper()
		expect.That(t, reflect.DeepEqual(got, want), "%s: %v, want %v", name, got, want)
	}
	check("bool", d.Bool(), true)
	check("byte", d.Byte(), byte(200))
	check("int", d.Int(), int32(math.MinInt32))
	check("long", d.Long(), int64(math.MaxInt64))
	check("null", d.Buffer() == nil, true)
	empty := d.Buffer()
	check("empty", empty != nil && len(empty) == 0, true)
	s, ok := d.String()
	check("string", s, "päth")
	check("string is there", ok, true)
	list, ok := d.Strings()
	check("strings", list, []string{"x", "", "z"})
	check("strings are there", ok, true)
	got, null := d.ACL()
	check("acl", got, acl)
	check("no null in the acl", null, false)
	check("stat", d.Stat(), stat)
	check("error", d.Err(), nil)
	check("rest", len(d.Rest()), 0)
	check("offset", d.Offset(), len(b))
}

// A false length makes the decoder neither allocate memory nor read beyond the input. After the first error
// the decoder reads nothing more.
func TestLengthsAreNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		read func(*Decoder)
		want error
	}{
		{"buffer longer than the input", "7fffffff 00", func(d *Decoder) { d.Buffer() }, ErrShort},
		{"buffer of negative length", "fffffffe", func(d *Decoder) { d.Buffer() }, ErrLength},
		{"string of the least length", "80000000", func(d *Decoder) { _, _ = d.String() }, ErrLength},
		{"vector longer than the input", "7fffffff 00000000", func(d *Decoder) { d.Strings() }, ErrShort},
		{"vector with an element cut short", "00000001 00000005 61", func(d *Decoder) { d.Strings() }, ErrShort},
		{"acl longer than the input", "00ffffff 0000001f", func(d *Decoder) { d.ACL() }, ErrShort},
		{"int cut short", "000000", func(d *Decoder) { d.Int() }, ErrShort},
		{"long cut short", "00000000000000", func(d *Decoder) { d.Long() }, ErrShort},
	} {
		d := NewDecoder(unhex(t, c.in))
		c.read(&d)
		expect.Is(t, d.Err(), c.want, "%s", c.name)
		d.buf, d.off = unhex(t, "00000001 61 0000000000000000"), 0
		s, ok := d.String()
		expect.Equal(t, s, "", "%s: s", c.name)
		expect.That(t, !ok, "%s: the error did not stick: want !ok", c.name)
		expect.Equal(t, d.Int(), 0, "%s: d.Int()", c.name)
		expect.Equal(t, d.Long(), 0, "%s: d.Long()", c.name)
		expect.That(t, !d.Bool(), "%s: the error did not stick: want !d.Bool()", c.name)
		expect.Equal(t, d.Byte(), 0, "%s: d.Byte()", c.name)
		expect.Is(t, d.Err(), c.want, "%s", c.name)
	}
}

func TestNullVectors(t *testing.T) {
	d := NewDecoder(unhex(t, "ffffffff ffffffff 80000000 00000001 ffffffff"))
	expect.Equal(t, d.Count(4), -1, "a null vector counts")
	list, ok := d.Strings()
	expect.That(t, list == nil && !ok, "a null vector of strings: %q, %v", list, ok)
	n := d.Count(4)
	expect.Equal(t, n, 0, "a count below -1 is %d, as the reference has it 0", n)
	list, ok = d.Strings()
	if expect.That(t, ok, "a null element: %q, %v: want ok", list, ok) {
		if expect.Equal(t, len(list), 1, "a null element: len(list)") {
			expect.Equal(t, list[0], "", "a null element: list[0]")
		}
	}
	expect.OK(t, d.Err())
}

func TestConnectRequestWithAndWithoutTheLastByte(t *testing.T) {
	old := unhex(t, "00000000 0000000000000005 00001770 00000000000000ff 00000003 010203")
	r, err := DecodeConnectRequest(old)
	want := ConnectRequest{LastZxidSeen: 5, Timeout: 6000, SessionID: 255, Password: []byte{1, 2, 3}}
	if expect.OK(t, err) {
		expect.That(t, reflect.DeepEqual(r, want),
			"%+v, %v: want reflect.DeepEqual(r, want)", r, err)
	}
	want.HasReadOnly, want.ReadOnly = true, true
	r, err = DecodeConnectRequest(append(old, 1))
	if expect.OK(t, err) {
		expect.That(t, reflect.DeepEqual(r, want),
			"%+v, %v: want reflect.DeepEqual(r, want)", r, err)
	}
	for n := range old {
		expect.Fails(t, expect.Err(DecodeConnectRequest(old[:n])),
			"a request cut after %d bytes is accepted", n)
	}
}

// createBody returns the body of a createTTL. Without its last eight bytes it is the body of the other
// creates.
func createBody() []byte {
	b := AppendString(nil, "/locks/a/lock-")
	b = AppendBuffer(b, []byte("data"))
	b = AppendACL(b, WorldAnyone)
	b = AppendInt(b, FlagPersistentSequentialTTL)
	return AppendLong(b, 60_000)
}

func TestRequests(t *testing.T) {
	body := createBody()
	d := NewDecoder(body)
	got := d.CreateRequest(OpCreateTTL)
	want := CreateRequest{Path: "/locks/a/lock-", Data: []byte("data"), ACL: WorldAnyone, Flags: 6, TTL: 60_000}
	expect.OK(t, d.Err(), "create")
	expect.That(t, reflect.DeepEqual(got, want),
		"create: %+v, %v: want reflect.DeepEqual(got, want)", got, d.Err())
	d = NewDecoder(body)
	if d.CreateRequest(OpCreate2); len(d.Rest()) != 8 {
		t.Error("only createTTL carries a TTL")
	}
	for n := range body {
		if d := NewDecoder(body[:n]); true {
			if d.CreateRequest(OpCreateTTL); d.Err() == nil {
				t.Errorf("a create cut after %d bytes is accepted", n)
			}
		}
	}
	d = NewDecoder(AppendInt(AppendString(nil, "/a"), -1))
	r := d.PathVersion()
	expect.Equal(t, r, PathVersion{Path: "/a", Version: -1}, "delete")
	expect.OK(t, d.Err())
	d = NewDecoder(unhex(t, "ffffffff 00000003"))
	r = d.PathVersion()
	expect.Equal(t, r, PathVersion{NoPath: true, Version: 3}, "delete of null")
	expect.OK(t, d.Err())
	d = NewDecoder(AppendInt(AppendBuffer(AppendString(nil, "/a"), nil), 7))
	set := d.SetDataRequest()
	expect.Equal(t, set.Path, "/a", "setData: path")
	expect.That(t, set.Data == nil, "setData: the data are %q, want nil", set.Data)
	expect.Equal(t, set.Version, 7, "setData: version")
	expect.OK(t, d.Err())
	d = NewDecoder(AppendInt(AppendACL(AppendString(nil, "/a"), WorldAnyone), 7))
	setACL := d.SetACLRequest()
	expect.Equal(t, setACL.Path, "/a", "setACL: path")
	expect.List(t, setACL.ACL, WorldAnyone, "setACL: ACL")
	expect.Equal(t, setACL.Version, 7, "setACL: version")
	expect.OK(t, d.Err())
	d = NewDecoder(AppendMultiHeader(nil, OpCheck, false, -1))
	h := d.MultiHeader()
	expect.Equal(t, h, MultiHeader{OpCheck, false, -1}, "multi header")
	expect.OK(t, d.Err())
}

func TestFramesStandBehindEachOther(t *testing.T) {
	b, at := BeginFrame([]byte("before"))
	b = append(b, "abc"...)
	EndFrame(b, at)
	b, at = BeginFrame(b)
	EndFrame(b, at)
	want := append([]byte("before"), unhex(t, "00000003 616263 00000000")...)
	expect.List(t, b, want)
}

// A string that the decoder returns shares memory with the input, so that reading costs nothing.
func TestDecodingACreateAllocatesOnlyTheACL(t *testing.T) {
	body := createBody()
	if n := testing.AllocsPerRun(100, func() {
		d := NewDecoder(body)
		d.CreateRequest(OpCreateTTL)
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// The decoder refuses a count of elements for which too few bytes remain.
func TestCountsAreBelievedAsFarAsBytesAreThere(t *testing.T) {
	for _, x := range []struct {
		count int32
		rest  int
		elem  int
		want  int
		err   error
	}{
		{0, 0, 4, 0, nil}, {1, 4, 4, 1, nil}, {1, 3, 4, 0, ErrShort}, {2, 7, 4, 0, ErrShort}, {2, 8, 4, 2, nil},
		{2, 9, 4, 2, nil}, {1, 0, 4, 0, ErrShort}, {-1, 0, 4, -1, nil}, {-2, 0, 4, 0, nil}, {3, 36, 12, 3, nil},
		{3, 35, 12, 0, ErrShort},
	} {
		d := NewDecoder(append(AppendInt(nil, x.count), make([]byte, x.rest)...))
		got := d.Count(x.elem)
		expect.Equal(t, got, x.want, "%d of %d bytes, %d there", x.count, x.elem, x.rest)
		expect.Is(t, d.Err(), x.err, "%d of %d bytes, %d there", x.count, x.elem, x.rest)
	}
	d := NewDecoder([]byte{0, 0})
	expect.Equal(t, d.Count(4), 0, "a count cut short: d.Count(4)")
	expect.Is(t, d.Err(), ErrShort, "a count cut short")
}

// A damaged vector is an error. A null vector is not.
func TestVectorsOfStrings(t *testing.T) {
	for in, want := range map[string]struct {
		list []string
		ok   bool
		err  error
	}{
		"ffffffff":                      {nil, false, nil},
		"fffffffe":                      {[]string{}, true, nil},
		"00000000":                      {[]string{}, true, nil},
		"0000":                          {nil, true, ErrShort},
		"00000001":                      {nil, true, ErrShort},
		"00000001 00000002 61":          {nil, true, ErrShort},
		"00000001 fffffffe":             {nil, true, ErrLength},
		"00000002 00000001 61 ffffffff": {[]string{"a", ""}, true, nil},
		"00000002 00000001 61 00000001": {nil, true, ErrShort},
	} {
		d := NewDecoder(unhex(t, in))
		list, ok := d.Strings()
		expect.That(t, reflect.DeepEqual(list, want.list),
			"%s: %q, %v, %v: want reflect.DeepEqual(list, want.list)", in, list, ok, d.Err())
		expect.Equal(t, ok, want.ok, "%s: ok", in)
		expect.Is(t, d.Err(), want.err, "%s", in)
	}
}

// The decoder reports a null id, but not an empty id, at each place in a list. A damaged list has no entries.
func TestListsOfACLs(t *testing.T) {
	list := func(ids ...*string) []byte {
		b := AppendInt(nil, int32(len(ids)))
		for i, id := range ids {
			b = AppendString(AppendInt(b, int32(i)), "ip")
			if id == nil {
				b = AppendInt(b, -1)
			} else {
				b = AppendString(b, *id)
			}
		}
		return b
	}
	one, none := "1", ""
	for _, x := range []struct {
		name string
		in   []byte
		n    int // the length of the list; -1: the list is null or the input is damaged
		null bool
		err  error
	}{
		{"null", AppendInt(nil, -1), -1, false, nil},
		{"negative", AppendInt(nil, -7), -1, false, nil},
		{"empty", list(), -1, false, nil},
		{"two", list(&one, &none), 2, false, nil},
		{"the first is null", list(nil, &one), 2, true, nil},
		{"the last is null", list(&one, nil), 2, true, nil},
		{"cut short", list(nil, &one)[:30], -1, false, ErrShort},
	} {
		d := NewDecoder(x.in)
		acl, null := d.ACL()
		n := len(acl)
		if acl == nil {
			n = -1
		}
		expect.Equal(t, n, x.n, "%s", x.name)
		expect.Equal(t, null, x.null, "%s: null", x.name)
		expect.Is(t, d.Err(), x.err, "%s", x.name)
		for i, a := range acl {
			expect.Equal(t, a.Perms, int32(i), "%s: a.Perms", x.name)
			expect.Equal(t, a.Scheme, "ip", "%s: a.Scheme", x.name)
		}
	}
	// ReadCreate reuses the memory of the previous request's ACL, but keeps none of its entries.
	var r CreateRequest
	for _, acl := range [][]ACL{make([]ACL, 5), {{1, ID{"ip", "a"}}}, nil, {{2, ID{"ip", "b"}}, {3, ID{"ip", "c"}}}} {
		d := NewDecoder(AppendInt(AppendACL(AppendBuffer(AppendString(nil, "/a"), nil), acl), 7))
		d.ReadCreate(OpCreate, &r)
		expect.OK(t, d.Err())
		expect.That(t, reflect.DeepEqual(append([]ACL{}, r.ACL...), append([]ACL{}, acl...)),
			"%v, %v", r.ACL, d.Err())
		expect.Equal(t, r.TTL, 0, "r.TTL")
		expect.That(t, !r.NoPath, "%v, %v: want !r.NoPath", r.ACL, d.Err())
	}
	for n, kept := range map[int]int{KeptACL - 1: KeptACL - 1, KeptACL: KeptACL, KeptACL + 1: KeptACL} {
		d := NewDecoder(AppendInt(AppendACL(AppendString(nil, "/a"), make([]ACL, n)), 7))
		got := d.SetACLRequest()
		if expect.Equal(t, len(got.ACL), kept, "%d of %d entries: len(got.ACL)", len(got.ACL), n) {
			expect.Equal(t, got.Version, 7, "%d of %d entries: got.Version", len(got.ACL), n)
			expect.OK(t, d.Err(), "%d of %d entries", len(got.ACL), n)
		}
	}
}

// Codes have names, which operators read. A code without a name is shown as a number.
func TestNumbersHaveNames(t *testing.T) {
	for got, want := range map[string]string{
		OK.Error(): "ok (0)", NoNode.Error(): "no node (-101)", ErrCode(-999).Error(): "error -999",
		OpGetChildren2.String(): "getChildren2", OpCloseSession.String(): "closeSession", OpCode(99).String(): "op(99)",
		EventCreated.String(): "NodeCreated", EventDeleted.String(): "NodeDeleted",
		EventDataChanged.String(): "NodeDataChanged", EventChildrenChanged.String(): "NodeChildrenChanged",
		EventType(9).String(): "None",
	} {
		expect.Equal(t, got, want)
	}
}

// FuzzDecoder reads random bytes as each kind of record. The decoder does not panic and reads nothing beyond
// the input. A create stays the same when it is written and read again.
func FuzzDecoder(f *testing.F) {
	f.Add(createBody())
	f.Add([]byte("\xff\xff\xff\xff\x7f\xff\xff\xff"))
	f.Add(AppendStrings(nil, []string{"a", "b"}))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, op := range []OpCode{OpCreate, OpCreateTTL} {
			d := NewDecoder(in)
			r := d.CreateRequest(op)
			must.That(t, d.Offset() <= len(in),
				"read beyond the input: want d.Offset() <= len(in)")
			must.That(t, len(r.Data) <= len(in),
				"read beyond the input: want len(r.Data) <= len(in)")
			must.That(t, len(r.Path) <= len(in),
				"read beyond the input: want len(r.Path) <= len(in)")
			if d.Err() != nil || r.NoPath || r.NullACLID || r.ACL == nil {
				continue
			}
			out := AppendInt(AppendACL(AppendBuffer(AppendString(nil, r.Path), r.Data), r.ACL), r.Flags)
			if op == OpCreateTTL {
				out = AppendLong(out, r.TTL)
			}
			again := NewDecoder(out)
			back := again.CreateRequest(op)
			must.OK(t, again.Err(), "%+v came back as %+v", r, back)
			must.That(t, reflect.DeepEqual(back, r),
				"%+v came back as %+v: want reflect.DeepEqual(back, r)", r, back)
		}
		d := NewDecoder(in)
		d.SetDataRequest()
		d = NewDecoder(in)
		d.SetACLRequest()
		d = NewDecoder(in)
		for d.Err() == nil && !d.MultiHeader().Done {
			d.PathVersion()
		}
		_, err := DecodeConnectRequest(in)
		must.That(t, err != nil || len(in) >= 28, "a connect request of less than 28 bytes")
	})
}

func BenchmarkDecodeCreate(b *testing.B) {
	body := createBody()
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(body)
		d.CreateRequest(OpCreate)
	}
}
