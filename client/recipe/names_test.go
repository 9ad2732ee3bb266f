package recipe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A dash before ten digits is a minus sign only after another separator that itself follows some text.
func TestSignsOfNumbers(t *testing.T) {
	for name, want := range map[string]int32{
		"a--1000000001": -1000000001, "a_-1000000001": -1000000001, "a-1000000001": 1000000001,
		"--1000000001": 1000000001, "a--0000000001": 1, "a--1000000000": -1000000000,
	} {
		got, ok := Number(name)
		expect.That(t, ok, "%s has no number", name)
		expect.Equal(t, got, want, "the number of %s", name)
	}
	for text, want := range map[string]bool{
		"0000000000": true, "2147483647": true, "2147483648": false, "-1000000000": true, "-2147483648": true,
		"-2147483649": false, "-0999999999": false, "-999999999": true, "00000000001": false, "-00000000001": false,
		"-12345678": false, "123456789": false, "": false, "-": false,
	} {
		n, ok := ParseSeq(text)
		expect.Equal(t, ok, want, "%q is a number", text)
		if ok {
			expect.Equal(t, fmt.Sprintf("%010d", n), text, "the number of %q, written again", text)
		}
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
		expect.Equal(t, Describe(name).Layout, want, "%s", name)
	}
	expect.Equal(t, Layout(len(layoutNames)).String(), "layout 8")
	expect.Equal(t, Policy(len(policyNames)).String(), "policy 3")
	for p, name := range policyNames {
		got, err := ParsePolicy(name)
		expect.OK(t, err, "the policy %s", name)
		expect.Equal(t, got, Policy(p), "the policy %s", name)
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

// While the write node of a downgrade is there, it comes before the read node with the same number.
func TestWriterComesBeforeTheReaderOfItsNumber(t *testing.T) {
	w, r := Contender{Name: "w", Kind: RoleWrite, Seq: 4}, Contender{Name: "r", Kind: RoleRead, Seq: 4}
	expect.Equal(t, Compare(w, r), -1, "the writer beside the reader")
	expect.Equal(t, Compare(r, w), 1, "the reader beside the writer")
	expect.Equal(t, Compare(w, w), 0, "the writer beside itself")
	later := Contender{Name: "a", Kind: RoleWrite, Seq: 5}
	expect.Equal(t, Compare(r, later), -1, "the reader beside a later writer")
	expect.Equal(t, Compare(later, r), 1, "a later writer beside the reader")
}

// Likeness.Read accepts only names like the client's own, and reads the same parts of them as ParseName.
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
				if quick {
					expect.Equal(t, got, want, "what the quick way reads in %s", name)
				}
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

// ParseName recognises the maker of a node also if its host has no name.
func TestMakerWithoutHost(t *testing.T) {
	name := NodeName(LayoutHost, RoleRead, NewID(1, 2), "") + "0000000001"
	c, l, ok := ParseName(name)
	expect.That(t, ok, "%s is no contender", name)
	expect.Equal(t, l, LayoutHost, "the layout of %s", name)
	expect.Equal(t, c.Maker, MakerSelf, "the maker of %s", name)
}

// A name that ZooKeeper's recipes make has the session's id after the "x-".
func TestNamesOfZooKeepersRecipes(t *testing.T) {
	for name, want := range map[string]Layout{
		"x-1f-0000000001": LayoutZooKeeper, "x--1f-0000000001": LayoutZooKeeper,
		"x-0x1f-0000000001": LayoutZooKeeper, "x-notes-0000000001": LayoutPlain, "x--0000000001": LayoutPlain,
		"1f-0000000001": LayoutPlain, "x-123456789012345678901-0000000001": LayoutPlain,
	} {
		expect.Equal(t, Describe(name).Layout, want, "%s", name)
	}
}

// A name shows whether its node may be a contender, and whether it certainly has a contender's form.
func TestContendersByName(t *testing.T) {
	const id, dashed = "0123456789abcdef0123456789abcdef", "01234567-89ab-4def-8123-456789abcdef"
	for name, want := range map[string]struct{ may, is bool }{
		"lock": {true, false}, "notes": {false, false}, "lock-0000000001": {true, true}, "lock0000000017": {
			true, true}, id: {true, false},
		id + "__party__": {true, false}, "q-" + dashed + "-R-0000000001": {true, true}, "h-" + dashed + "-W": {
			true, true}, "h-" + dashed: {false, false},
		"x-1-0000000001": {true, true}, "0000000001": {true, true}, "ready": {false, false}, "lock--2147483648": {
			true, true},
	} {
		expect.Equal(t, MayContend(name), want.may, "%s may be a contender", name)
		expect.Equal(t, IsContender(name), want.is, "%s is a contender", name)
	}
	for name, want := range map[string]int32{"lock-0000000007": 7, "lock--2147483648": -2147483648,
		"item0000000009": 9, "job-2147483647": 2147483647} {
		n, ok := Number(name)
		expect.That(t, ok, "%s has no number", name)
		expect.Equal(t, n, want, "the number of %s", name)
	}
	_, ok := Number("h-" + dashed + "-W")
	expect.That(t, !ok, "a hold has a number")
	d := Describe("block-0000000001")
	expect.Equal(t, d.Layout, LayoutPlain, "the layout of block-")
	expect.That(t, d.Word, "block- does not count as the name of a lock")
}

// The word before the number in a name tells the role, whatever the separator, and in upper or lower case.
func TestPlainRoleOfAName(t *testing.T) {
	for head, want := range map[string]struct {
		role Role
		word bool
	}{
		"read-": {RoleRead, true}, "my_reader": {RoleRead, true}, "x:RLOCK#": {RoleRead, true},
		"r": {RoleRead, true}, "-r": {RoleRead, true}, "a.readlock": {RoleRead, true}, "shared~": {RoleRead, true},
		"write-": {RoleWrite, true}, "a-writer": {RoleWrite, true}, "wlock": {RoleWrite, true},
		"b.writelock.": {RoleWrite, true}, "W": {RoleWrite, true},
		"n": {RoleLock, true}, "x-lk-": {RoleLock, true}, "mylock1-x": {RoleLock, true},
		"": {RoleLock, false}, "nn": {RoleLock, false}, "write-x": {RoleLock, false}, "ar": {RoleLock, false},
	} {
		role, word := PlainRole(head)
		expect.Equal(t, role, want.role, "the role of %q", head)
		expect.Equal(t, word, want.word, "%q is a lock's", head)
	}
}

func TestPaths(t *testing.T) {
	for _, c := range [][3]string{{"/", "a", "/a"}, {"/a", "b", "/a/b"}, {"/a/b", "c", "/a/b/c"}} {
		expect.Equal(t, Join(c[0], c[1]), c[2], "%s in %s", c[1], c[0])
		expect.Equal(t, Parent(c[2]), c[0], "the parent of %s", c[2])
		expect.Equal(t, Base(c[2]), c[1], "the last name of %s", c[2])
	}
	l := Lock{Path: "/s"}
	for node, want := range map[string]string{"": "/s", "a": "/s/a", "locks/a": "/s/locks/a",
		"/s-__lock__/a": "/s-__lock__/a"} {
		expect.Equal(t, l.Target(node), want, "%q is at", node)
	}
}
