package view_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/expect"
)

// The page leads from each path and session to what there is of it, finds sessions by
// their address, and offers to ask back only where the other program looks.
func TestPageLeadsOn(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.node(c, "/app/one/lock-", `{"v":1,"host":"web"}`, zk.FlagEphemeral|zk.FlagSequence)
	kazoo := r.node(c, "/app/k/0123456789abcdef0123456789abcdef__lock__", "", zk.FlagEphemeral|zk.FlagSequence)
	r.node(c, "/app/c/_c_0123456789ab4cde8123456789abcdef-lock-", "", zk.FlagEphemeral|zk.FlagSequence)
	for query, want := range map[string]struct{ has, lacks []string }{
		"tab=sessions&addr=127.": {[]string{`name="addr" value="127."`, `id=` + sid(c), "1 sessions"}, nil},
		"tab=sessions&addr=10.":  {[]string{"0 sessions"}, []string{`id=` + sid(c)}},
		"tab=sessions&server=9":  {[]string{"0 sessions"}, nil},
		"tab=sessions&server=x":  {[]string{"want a number"}, nil},
		"tab=sessions&here=1":    {[]string{"1 sessions", "checked"}, nil},
		"tab=tree&path=/app/one": {[]string{
			`href="/?tab=tree&amp;path=%2f"`, `href="/?tab=tree&amp;path=%2fapp"`,
			`href="/?tab=tree&amp;path=%2fapp%2fone"`, `href="/?tab=lock&amp;path=%2fapp%2fone"`,
		}, nil},
		"tab=tree&path=/": {[]string{`href="/?tab=tree&amp;path=%2f"`}, []string{`data-key="up-"`}},
		"tab=session&id=" + sid(c): {[]string{`href="/?tab=tree&amp;path=%2fapp%2fone%2flock-0000000000"`},
			nil},
		"tab=lock&path=/app/one": {[]string{`data-act="ask"`, `data-act="break"`,
			`href="/?tab=tree&amp;path=%2fapp%2fone%2flock-0000000000"`}, nil},
		"tab=lock&path=/app/k":           {[]string{`data-act="break"`}, []string{`data-act="ask"`}},
		"tab=lock&path=/app/c":           {[]string{`data-act="break"`}, []string{`data-act="ask"`}},
		"tab=lock&path=" + kazoo + "/no": {[]string{"there is no node"}, nil},
	} {
		a, b := r.request("GET", "/?"+query, nil, "")
		expect.Equal(t, a.StatusCode, 200, "%s: %s", query, a.Status)
		page := string(b)
		page = page[strings.Index(page, "<main"):strings.Index(page, "<script>")]
		for _, s := range want.has {
			expect.Has(t, page, s, "%s: %q is missing in", query, s)
		}
		for _, s := range want.lacks {
			expect.That(t, !strings.Contains(page, s), "%s: %q is there", query, s)
		}
	}
	page := func() string { _, b := r.request("GET", "/", nil, ""); return string(b) }()
	for _, s := range []string{
		"new TextEncoder()", `addEventListener("close", () => { $("act-password").value = "";`} {
		expect.Has(t, page, s, "the script lacks")
	}
}
