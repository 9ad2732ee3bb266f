package recipe

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A minus before ten digits is a sign only after another separator that itself follows some text.
func TestSignsOfNumbers(t *testing.T) {
	for name, want := range map[string]int32{
		"a--1000000001": -1000000001, "a_-1000000001": -1000000001, "a-1000000001": 1000000001,
		"--1000000001": 1000000001, "a--0000000001": 1, "a--1000000000": -1000000000,
	} {
		got, ok := Number(name)
		expect.That(t, ok && got == want, "%s has the number %d, %v", name, got, ok)
	}
	for text, want := range map[string]bool{
		"0000000000": true, "2147483647": true, "2147483648": false, "-1000000000": true, "-2147483648": true,
		"-2147483649": false, "-0999999999": false, "-999999999": true, "00000000001": false, "-00000000001": false,
		"-12345678": false, "123456789": false, "": false, "-": false,
	} {
		n, ok := ParseSeq(text)
		expect.Equal(t, ok, want, "%q is a number", text)
		expect.That(t, !ok || strconv.Itoa(int(n)) == strings.TrimLeft(text, "0") || n == 0, "%q is %d", text, n)
	}
}

// ParseName finds the layout at the end of a name, whatever text precedes the marker. A marker "lock-" counts
// only as the whole name or after a separator.
func TestLayoutsOfNames(t *testing.T) {
	for name, want := range map[string]Layout{
		"a__READ__0000000001": LayoutCurator, "a__lock__0000000001": LayoutKazoo, "lock-0000000001": LayoutCurator,
		"a-lock-0000000001": LayoutCurator, "alock-0000000001": LayoutPlain, "alatch-0000000001": LayoutPlain,
		"-R-0000000001": LayoutHost, "x-18446744073709551615-0000000001": LayoutZooKeeper,
	} {
		expect.Equal(t, describe(name).layout, want, "%s", name)
	}
	expect.Equal(t, Layout(len(LayoutNames)).String(), "layout 8")
	expect.Equal(t, Policy(len(policyNames)).String(), "policy 3")
	for p, name := range policyNames {
		got, err := ParsePolicy(name)
		expect.That(t, err == nil && got == Policy(p), "%s is read as %v, %v", name, got, err)
	}
	expect.Is(t, expect.Err(ParsePolicy("other")), ErrInvalid)
}

func TestMakersByTheirIDs(t *testing.T) {
	const dashed, hex = "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01", "0b4ae3a44fbd4f4b8d0f4e5a7a0c1d01"
	for head, want := range map[string]Maker{
		"_c_" + dashed + "-": MakerCurator, "_c_" + hex + "-": MakerGo,
		"_c_" + NewID(1, 2).UUID() + "-":      MakerSelf,
		"_c_" + strings.Repeat("z", 36) + "-": MakerUnknown,
		"_c_" + strings.Repeat("z", 32) + "-": MakerUnknown, "_c_ab-": MakerUnknown, "_c_": MakerUnknown,
		hex: MakerKazoo, NewID(1, 2).Hex(): MakerSelf, "ab": MakerUnknown,
	} {
		expect.Equal(t, MakerOf(head), want, "%q", head)
	}
}

// While the write node of a downgrade is there, it comes before the read node of the same number.
func TestWriterComesBeforeTheReaderOfItsNumber(t *testing.T) {
	w, r := Contender{Name: "w", Kind: RoleWrite, Seq: 4}, Contender{Name: "r", Kind: RoleRead, Seq: 4}
	expect.That(t, Compare(w, r) < 0,
		"%d, %d: want Compare(w, r) < 0", Compare(w, r), Compare(r, w))
	expect.That(t, Compare(r, w) > 0,
		"%d, %d: want Compare(r, w) > 0", Compare(w, r), Compare(r, w))
	expect.Equal(t, Compare(w, w), 0, "Compare(w, w)")
	later := Contender{Name: "a", Kind: RoleWrite, Seq: 5}
	expect.That(t, Compare(r, later) < 0,
		"%d, %d: want Compare(r, later) < 0", Compare(r, later), Compare(later, r))
	expect.That(t, Compare(later, r) > 0,
		"%d, %d: want Compare(later, r) > 0", Compare(r, later), Compare(later, r))
}

// The quick reading accepts only names like the client's own, and reads the same parts as ParseName.
func TestNamesLikeTheOwnOne(t *testing.T) {
	for _, own := range []string{"_c_" + NewID(1, 2).UUID() + "-lock-0000000005",
		"_c_" + NewID(1, 2).UUID() + "-__READ__0000000005"} {
		self, _, ok := ParseName(own)
		must.That(t, ok, "%s is no contender", own)
		alike := LikenessOf(self)
		for i := range own {
			for _, c := range []byte("09a/:-g8") {
				name := own[:i] + string(c) + own[i+1:]
				got, quick := alike.Read(name)
				want, _, _ := ParseName(name)
				expect.That(t, !quick || got == want, "%s is read as %+v, not %+v", name, got, want)
			}
		}
		head := own[:len(own)-10]
		for _, number := range []string{"0000000000", "0123456789", "2147483647"} {
			_, quick := alike.Read(head + number)
			expect.That(t, quick, "%s is read the long way", head+number)
		}
		for _, number := range []string{"2147483648", "9999999999", "-123456789"} {
			_, quick := alike.Read(head + number)
			expect.That(t, !quick, "%s is read the quick way", head+number)
		}
		foreign := strings.Replace(own, NewID(1, 2).UUID(), "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01", 1)
		_, quick := alike.Read(foreign)
		expect.That(t, !quick, "%s is read as one of this package", foreign)
	}
}

// Only a node that a downgrade may replace leaves its place to another.
func TestEndsThatAreFinal(t *testing.T) {
	curator, kazoo := Rule{Layout: LayoutCurator}, Rule{Layout: LayoutKazoo}
	reader := Rule{Layout: LayoutKazoo, Kind: RoleRead}
	for _, c := range []struct {
		rule Rule
		kind Role
		want bool
	}{
		{curator, RoleLock, true}, {curator, RoleWrite, false}, {curator, RoleRead, true},
		{curator, RoleLatch, true},
		{kazoo, RoleLock, false}, {kazoo, RoleWrite, false}, {kazoo, RoleRead, true}, {kazoo, RoleLatch, true},
		{reader, RoleLock, true}, {reader, RoleWrite, true},
	} {
		expect.Equal(t, c.rule.EndIsFinal(Contender{Kind: c.kind}), c.want, "%+v: the end of %v", c.rule, c.kind)
	}
}

// QueueOf puts contenders in order, and refuses those that cannot be in one queue.
func TestQueueOfADirectory(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	head := NodeName(LayoutCurator, RoleLock, NewID(1, 1), "")
	list, others, err := QueueOf(LayoutCurator, []string{head + "0000000003", "notes", head + "0000000001",
		curator + "0000000002"}, false)
	must.OK(t, err)
	var order []int32
	for _, c := range list {
		order = append(order, c.Seq)
	}
	expect.List(t, order, []int32{1, 2, 3}, "order")
	expect.List(t, others, []string{"notes"}, "others")
	list, _, err = QueueOf(LayoutKazoo, []string{"notes", head + "0000000001"}, false)
	expect.That(t, list == nil, "%v", list)
	expect.Is(t, err, ErrMixedLayout)
	_, _, err = QueueOf(LayoutCurator, []string{head + "-2147483648", curator + "0000000001"}, false)
	expect.Is(t, err, ErrSequenceExhausted)
}

// Contenders of other programs order numbers as text: no number may have wrapped, or be about to.
func TestNumbersThatOtherProgramsOrder(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	lock := Rule{Layout: LayoutCurator}
	wrapped := NodeName(LayoutCurator, RoleLock, NewID(1, 2), "") + "-2147483648"
	last := curator + strconv.Itoa(math.MaxInt32-1_000_000)
	for _, c := range []struct {
		names []string
		want  error
	}{
		{[]string{curator + "0000000000"}, nil}, {[]string{last}, nil},
		{[]string{wrapped, curator + "0000000003"}, ErrSequenceExhausted},
		{[]string{curator + "0000000003", wrapped}, ErrSequenceExhausted},
		{[]string{curator + strconv.Itoa(math.MaxInt32-999_999)}, ErrSequenceExhausted},
	} {
		_, err := lock.Place(slices.Values(c.names), Contender{})
		expect.Is(t, err, c.want, "%v", c.names)
	}
	host, kazoo := Rule{Layout: LayoutHost}, []string{"f65a711639a74cab9e5222dd97208501__lock__0000000003"}
	_, err := host.Place(slices.Values(kazoo), Contender{})
	expect.Is(t, err, ErrMixedLayout)
}
