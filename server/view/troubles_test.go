package view_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
)

// /health and the metrics show how many locks are held twice and how many holders are over their limit,
// without names.
func TestTroublesAreTold(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	const both = zk.FlagEphemeral | zk.FlagSequence
	r.node(a, "/jobs/secret/_c_00000001-1111-4111-8111-111111111111-lock-", "", both)
	r.node(b, "/jobs/secret/f65a711639a74cab9e5222dd97208552__lock__", "", both)
	ours := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(b.SessionID(), 7), "h")
	r.node(b, "/jobs/slow/"+ours, `{"v":1,"host":"h","over":true}`, both)
	for _, word := range []string{"1 lock is held twice", "1 holder has held"} {
		r.eventually("/health", func(o object) bool {
			notices, _ := o["notices"].([]any)
			for _, n := range notices {
				if text, _ := n.(string); strings.HasPrefix(text, word) {
					expect.That(t, !strings.Contains(text, "secret"), "%s", text)
					return true
				}
			}
			return false
		})
	}
	_, text := r.request("GET", "/metrics", nil, "")
	for _, line := range []string{"zlockd_locks_held_twice 1", "zlockd_lock_holds_over_limit 1"} {
		expect.That(t, strings.Contains(string(text), "\n"+line), "%s is missing", line)
	}
	lock := r.get(200, "/locks/jobs/secret")
	expect.Equal(t, lock["heldTwice"], any(true))
}
