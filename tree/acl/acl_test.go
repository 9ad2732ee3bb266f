package acl_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/rights"
	"github.com/zlockd/zlockd/tree/acl"
)

func id(scheme, id string) jute.ID { return jute.ID{Scheme: scheme, ID: id} }

func entry(perms int32, scheme, name string) jute.ACL {
	return jute.ACL{Perms: perms, ID: id(scheme, name)}
}

func TestDigestIDIsTheReferences(t *testing.T) {
	expect.Equal(t, acl.DigestID("u1:p1"), id("digest", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="))
	for _, credentials := range []string{"name", "name:", "name:a:b"} {
		if got := acl.DigestID(credentials).ID; !strings.HasPrefix(got, "name:") || len(got) != len("name:")+28 {
			t.Errorf("%q: %q", credentials, got)
		}
	}
}

// The table says which identities an entry of each scheme matches.
func TestAllowedMatchesByScheme(t *testing.T) {
	d1, d2 := acl.DigestID("u1:p1"), acl.DigestID("u2:p2")
	for _, test := range []struct {
		entry jute.ID
		ids   []jute.ID
		want  bool
	}{
		{id("world", "anyone"), nil, true},
		{id("world", "somebody"), nil, false},
		{id("world", "somebody"), []jute.ID{id("world", "somebody")}, false},
		{d1, []jute.ID{d1}, true},
		{d1, []jute.ID{d2}, false},
		{d1, []jute.ID{d2, d1}, true},
		{d1, []jute.ID{id("digest", d1.ID[:len(d1.ID)-1])}, false},
		{d1, []jute.ID{id("ip", d1.ID)}, false},
		{d1, nil, false},
		{d1, []jute.ID{id("super", "")}, true},
		{d1, []jute.ID{id("digest", "super")}, false},
		{id("ip", "10.1.2.3"), []jute.ID{id("ip", "10.1.2.3")}, true},
		{id("ip", "10.1.2.3"), []jute.ID{id("ip", "10.1.2.4")}, false},
		{id("ip", "10.1.2.3/24"), []jute.ID{id("ip", "10.1.2.99")}, true},
		{id("ip", "10.1.2.3/24"), []jute.ID{id("ip", "10.1.3.3")}, false},
		{id("ip", "10.1.2.3/0"), []jute.ID{id("ip", "99.1.3.3")}, true},
		{id("ip", "10.1.2.3/32"), []jute.ID{id("ip", "10.1.2.3")}, true},
		{id("ip", "10.1.2.3"), []jute.ID{id("ip", "::ffff:10.1.2.3")}, true},
		{id("ip", "10.1.2.3/0"), []jute.ID{id("ip", "::1")}, false},
		{id("ip", "::1"), []jute.ID{id("ip", "::1")}, false},
		{id("ip", "10.1.2.3"), []jute.ID{id("ip", "nonsense")}, false},
		{id("ip", "nonsense"), []jute.ID{id("ip", "nonsense")}, false},
		{id("x509", "CN=a"), []jute.ID{id("x509", "CN=a")}, true},
		{id("x509", "CN=a"), []jute.ID{id("x509", "CN=b")}, false},
		{id("sasl", "a"), []jute.ID{id("sasl", "a")}, true},
		{id("sasl", "a"), []jute.ID{id("sasl", "super")}, true},
		{id("sasl", "a"), []jute.ID{id("sasl", "b")}, false},
		{id("unheard", "a"), []jute.ID{id("unheard", "a")}, false},
		{id("auth", "a"), []jute.ID{id("auth", "a")}, false},
	} {
		for bit := int32(1); bit <= jute.PermAdmin; bit *= 2 {
			if got := acl.New([]jute.ACL{{Perms: bit, ID: test.entry}}).Allows(test.ids, bit); got != test.want {
				t.Errorf("%v for %v: %v", test.entry, test.ids, got)
			}
			other := []jute.ACL{{Perms: ^bit, ID: test.entry}}
			if got := acl.New(other).Allows(test.ids, bit); got &&
				(len(test.ids) == 0 || test.ids[0].Scheme != "super") {
				t.Errorf("%v for %v lets in without the bit", test.entry, test.ids)
			}
		}
	}
	expect.That(t, acl.New(nil).Allows(nil, jute.PermAll), "an empty ACL forbids")
	both := acl.New([]jute.ACL{entry(jute.PermAdmin, "world", "anyone")})
	expect.That(t, both.Allows(nil, jute.PermRead|jute.PermAdmin),
		"any of the bits asked for is enough, and needed")
	expect.That(t, !both.Allows(nil, jute.PermRead),
		"any of the bits asked for is enough, and needed: want !both.Allows(nil, jute.PermRead)")
}

// The table says which ACL Fix stores for the ACL of a client.
func TestFix(t *testing.T) {
	d1, d2 := acl.DigestID("u1:p1"), acl.DigestID("u2:p2")
	world := entry(31, "world", "anyone")
	for _, test := range []struct {
		name string
		acl  []jute.ACL
		ids  []jute.ID
		want []jute.ACL // nil: Fix answers INVALIDACL
	}{
		{"null", nil, nil, nil},
		{"empty", []jute.ACL{}, nil, nil},
		{"world", []jute.ACL{world}, nil, []jute.ACL{world}},
		{"world nobody", []jute.ACL{entry(31, "world", "nobody")}, nil, nil},
		{"duplicates", []jute.ACL{world, entry(1, "world", "anyone"), world}, nil, []jute.ACL{
			world, entry(1, "world", "anyone")}},
		{"odd perms", []jute.ACL{entry(0, "world", "anyone"), entry(-1, "world", "anyone")}, nil, []jute.ACL{
			entry(0, "world", "anyone"), entry(-1, "world", "anyone")}},
		{"no scheme", []jute.ACL{entry(31, "", "x")}, nil, nil},
		{"super", []jute.ACL{entry(31, "super", "")}, []jute.ID{id("super", "")}, nil},
		{"unknown", []jute.ACL{entry(31, "unheard", "x")}, []jute.ID{id("unheard", "x")}, nil},
		{"one bad", []jute.ACL{world, entry(31, "unheard", "x")}, nil, nil},
		{"auth", []jute.ACL{entry(5, "auth", "ignored")}, []jute.ID{id("ip", "1.2.3.4"), d1}, []jute.ACL{
			{Perms: 5, ID: d1}}},
		{"auth twice", []jute.ACL{world, entry(5, "auth", ""), entry(1, "world", "anyone")}, []jute.ID{d1, d2},
			[]jute.ACL{world, {Perms: 5, ID: d1}, {Perms: 5, ID: d2}, entry(1, "world", "anyone")}},
		{"auth of nobody", []jute.ACL{world, entry(5, "auth", "")}, []jute.ID{id("ip", "1.2.3.4"), id("super", "")},
			nil},
		{"auth x509", []jute.ACL{entry(5, "auth", "")}, []jute.ID{id("x509", "CN=a")}, []jute.ACL{
			entry(5, "x509", "CN=a")}},
		{"digest", []jute.ACL{entry(1, "digest", "a:b")}, nil, []jute.ACL{entry(1, "digest", "a:b")}},
		{"digest no user", []jute.ACL{entry(1, "digest", ":b")}, nil, []jute.ACL{entry(1, "digest", ":b")}},
		{"digest colon behind", []jute.ACL{entry(1, "digest", "a:b:")}, nil, []jute.ACL{
			entry(1, "digest", "a:b:")}},
		{"digest no hash", []jute.ACL{entry(1, "digest", "a:")}, nil, nil},
		{"digest no colon", []jute.ACL{entry(1, "digest", "nocolon")}, nil, nil},
		{"digest three", []jute.ACL{entry(1, "digest", "a:b:c")}, nil, nil},
		{"digest colons", []jute.ACL{entry(1, "digest", "::")}, nil, nil},
		{"digest empty", []jute.ACL{entry(1, "digest", "")}, nil, nil},
		{"ip", []jute.ACL{entry(1, "ip", "1.2.3.4")}, nil, []jute.ACL{entry(1, "ip", "1.2.3.4")}},
		{"ip range", []jute.ACL{entry(1, "ip", "1.2.3.4/0"), entry(1, "ip", "1.2.3.4/32")}, nil, []jute.ACL{
			entry(1, "ip", "1.2.3.4/0"), entry(1, "ip", "1.2.3.4/32")}},
		{"ip bits", []jute.ACL{entry(1, "ip", "1.2.3.4/33")}, nil, nil},
		{"ip minus", []jute.ACL{entry(1, "ip", "1.2.3.4/-0")}, nil, nil},
		{"ip plus", []jute.ACL{entry(1, "ip", "1.2.3.4/+8")}, nil, nil},
		{"ip short", []jute.ACL{entry(1, "ip", "1.2.3")}, nil, nil},
		{"ip long", []jute.ACL{entry(1, "ip", "1.2.3.4.5")}, nil, nil},
		{"ip big", []jute.ACL{entry(1, "ip", "1.2.3.256")}, nil, nil},
		{"ip zone", []jute.ACL{entry(1, "ip", "::ffff:1.2.3.4%eth0")}, nil, nil},
		{"ip6", []jute.ACL{entry(1, "ip", "::1")}, nil, nil},
		{"ip6 range", []jute.ACL{entry(1, "ip", "::1/128")}, nil, nil},
		{"ip empty", []jute.ACL{entry(1, "ip", "")}, nil, nil},
		{"sasl not configured", []jute.ACL{entry(1, "sasl", "a")}, nil, nil},
		{"x509 not configured", []jute.ACL{entry(1, "x509", "CN=a")}, []jute.ID{d1}, nil},
		{"x509", []jute.ACL{entry(1, "x509", "CN=a")}, []jute.ID{id("x509", "CN=b")}, []jute.ACL{
			entry(1, "x509", "CN=a")}},
	} {
		got, code := acl.Fix(test.acl, test.ids, false)
		if test.want == nil {
			expect.That(t, code == jute.InvalidACL && got == nil, "%s: %v, %v", test.name, got, code)
		} else if code != jute.OK || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, %v", test.name, got, code)
		}
	}
}

func TestFixStumblesOverNullIDsAsTheReference(t *testing.T) {
	for scheme, want := range map[string]jute.ErrCode{
		"world": jute.MarshallingError, "digest": jute.MarshallingError, "ip": jute.MarshallingError,
		"unheard": jute.InvalidACL, "auth": jute.OK,
	} {
		if _, code := acl.Fix([]jute.ACL{entry(31, scheme, "")}, []jute.ID{acl.DigestID("u1:p1")},
			true); code != want {
			t.Errorf("%s: %v, want %v", scheme, code, want)
		}
	}
}

// L13: Fix accepts an ACL at each limit and refuses one more, both in the client's ACL and in the list that
// Fix makes of it.
func TestFixHoldsItsLimits(t *testing.T) {
	many := func(n int) (list []jute.ACL) {
		for i := range n {
			list = append(list, entry(int32(i), "world", "anyone"))
		}
		return list
	}
	if got, code := acl.Fix(many(acl.MaxEntries), nil, false); code != jute.OK ||
		len(got) != acl.MaxEntries {
		t.Error(len(got), code)
	}
	if _, code := acl.Fix(many(acl.MaxEntries+1), nil, false); code != jute.InvalidACL {
		t.Error(code)
	}
	wide := func(n int) []jute.ACL { return []jute.ACL{entry(1, "digest", "u:"+strings.Repeat("x", n))} }
	fits := acl.MaxBytes - 4 - 12 - len("digestu:")
	if _, code := acl.Fix(wide(fits), nil, false); code != jute.OK {
		t.Error(code)
	}
	if _, code := acl.Fix(wide(fits+1), nil, false); code != jute.InvalidACL {
		t.Error(code)
	}
	var ids []jute.ID
	for i := range 32 {
		ids = append(ids, acl.DigestID(fmt.Sprintf("u%d:p", i)))
	}
	var list []jute.ACL
	for i := range 32 {
		list = append(list, entry(int32(i), "auth", ""))
	}
	if _, code := acl.Fix(list, ids, false); code != jute.InvalidACL {
		t.Error("1024 entries after expansion:", code)
	}
	if got, code := acl.Fix(list[:31], ids, false); code != jute.OK || len(got) != 31*32 {
		t.Error(len(got), code)
	}
	// Fix replaces each `auth` entry by one for each identity. The result has exactly as many entries as are
	// allowed, and then one more.
	list = list[:0]
	for i := range 40 {
		list = append(list, entry(int32(i), "auth", ""))
	}
	must.Equal(t, len(list)*25, acl.MaxEntries)
	if got, code := acl.Fix(list, ids[:25], false); code != jute.OK || len(got) != acl.MaxEntries {
		t.Error(len(got), code)
	}
	if _, code := acl.Fix(append(list, entry(1, "world", "anyone")), ids[:25], false); code != jute.InvalidACL {
		t.Error("an entry behind a full ACL:", code)
	}
}

// An ACL must give the same answer as a check of its entries one by one, for any number of entries and of
// identities.
func TestAnACLGrantsWhatItsEntriesDo(t *testing.T) {
	race.Alone(t)
	rng := rand.New(rand.NewPCG(1, 2))
	one := func(list ...string) string { return list[rng.IntN(len(list))] }
	address := func() string {
		a := fmt.Sprintf("10.0.%d.%d", rng.IntN(3), rng.IntN(5))
		if rng.IntN(2) == 0 {
			a += fmt.Sprintf("/%d", rng.IntN(33))
		}
		return a
	}
	id := func() jute.ID {
		scheme := one("world", "digest", "digest", "ip", "ip", "ip", "sasl", "x509", "none")
		return jute.ID{Scheme: scheme, ID: one("anyone", "a:1", "a:2", "super", "bob", "", address(), address(),
			address())}
	}
	granted := 0
	for range 20_000 {
		var list []jute.ACL
		var ids []jute.ID
		for range rng.IntN(20) {
			list = append(list, jute.ACL{Perms: rng.Int32N(32), ID: id()})
		}
		for range rng.IntN(10) {
			ids = append(ids, id())
		}
		perms := acl.New(list).Grants(ids)
		for bit := int32(1); bit <= jute.PermAdmin; bit *= 2 {
			got, want := perms&bit != 0, rights.Allowed(list, ids, bit)
			must.Equal(t, got, want, "%v by %v", list, ids)
		}
		if perms&jute.PermRead != 0 {
			granted++
		}
	}
	expect.That(t, granted >= 1000 && granted <= 19_000,
		"%d of 20,000 may read: the random ACLs prove little", granted)
}

// Without ADMIN a client does not see the hashes of passwords in an ACL.
func TestHashesOfPasswordsAreHidden(t *testing.T) {
	list := []jute.ACL{entry(1, "world", "anyone"), entry(16, "digest", "me:hash"),
		entry(3, "digest", "nocolon"), entry(2, "sasl", "a:b")}
	seen := []jute.ACL{entry(1, "world", "anyone"), entry(16, "digest", "me:x"),
		entry(3, "digest", "nocolon:x"), entry(2, "sasl", "a:b")}
	a, me := acl.New(list), []jute.ID{id("digest", "me:hash")}
	expect.Equal(t, string(a.AppendFor([]byte("b"), nil)), "b"+string(jute.AppendACL(nil, seen)))
	expect.Equal(t, string(a.AppendFor(nil, me)), string(jute.AppendACL(nil, list)))
}

// An Asker remembers answers of ACLs for one client. It must answer as the ACLs themselves do, however many
// identities the client has.
func TestAskerAnswersAsTheACLs(t *testing.T) {
	var sets []*acl.Set
	for i := range 5 {
		sets = append(sets, acl.New([]jute.ACL{entry(1<<i, "world", "anyone"), entry(2<<i, "digest", "u5:x")}))
	}
	for _, count := range []int{0, 3, 10} {
		var ids []jute.ID
		for i := range count {
			ids = append(ids, id("digest", fmt.Sprintf("u%d:x", i)))
		}
		var asker acl.Asker
		rng := rand.New(rand.NewPCG(3, uint64(count)))
		for range 200 {
			a := sets[rng.IntN(len(sets))]
			for bit := int32(1); bit <= jute.PermAdmin; bit *= 2 {
				must.Equal(t, asker.Allows(a, ids, bit), a.Allows(ids, bit), "%d identities", count)
			}
			must.That(t, asker.Recalls(a), "the last answer is forgotten")
			must.That(t, !asker.Recalls(acl.New(nil)), "an answer about an unknown ACL costs nothing")
		}
	}
}
