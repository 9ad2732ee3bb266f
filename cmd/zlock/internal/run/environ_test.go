package run

import (
	"net/url"
	"testing"

	"github.com/zlockd/zlockd/client/fence"
)

func TestAncestorHolds(t *testing.T) {
	good := fence.Sequencer{Path: "/a b", Mode: fence.Exclusive, Token: 7, Node: "lock-0000000003"}
	word := func(chroot string, s fence.Sequencer) string { return url.PathEscape(chroot) + "@" + s.String() }
	for _, c := range []struct {
		value, chroot, path string
		want                bool
	}{
		{word("", good), "", "/a b", true},
		{word("/root", good), "/root", "/a b", true},
		{word("/root", good), "", "/root/a b", true}, // without a chroot, this path is the same node
		{word("/root", good), "", "/a b", false},
		{word("", good), "/root", "/a b", false},
		{"", "", "/a b", false},
		{good.String(), "", "/a b", false},
		{"%zz@" + good.String(), "", "/a b", false},
		{"@nonsense", "", "/a b", false},
		{"@nonsense", "", "", false},
		{"@nonsense nonsense " + word("", good), "", "/a b", true},
	} {
		got := ancestorHolds(c.value, c.chroot, c.path)
		if (len(got) == 1) != c.want || c.want && got[0] != good {
			t.Errorf("%q holds %s%s: %+v", c.value, c.chroot, c.path, got)
		}
	}
}
