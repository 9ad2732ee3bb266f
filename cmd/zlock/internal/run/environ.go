//go:build !windows

package run

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client/fence"
)

// environ returns the environment for COMMAND: zlock's own, and variables that describe the locks and have
// the numbers of the permits.
func (j *job) environ(locks []fence.Sequencer, slots []int) []string {
	var ours []string // variables that describe the locks, as NAME=VALUE
	set := func(name, value string) { ours = append(ours, name+"="+value) }
	put := func(suffix string, h fence.Sequencer) {
		set("ZLOCK_PATH"+suffix, h.Path)
		set("ZLOCK_TOKEN"+suffix, h.Token.String())
		set("ZLOCK_SEQUENCER"+suffix, h.String())
		set("ZLOCK_NODE"+suffix, h.NodePath())
	}
	if len(slots) > 0 {
		set("ZLOCK_SLOT", fmt.Sprint(slots[0]))
		set("ZLOCK_SLOTS", strings.Trim(fmt.Sprint(slots), "[]"))
	}
	set("ZLOCK_HELD", "1")
	set("ZLOCK_SERVERS", j.servers)
	set("ZLOCK_CHROOT", j.chroot)
	set("ZLOCK_MODE", locks[0].Mode.String())
	put("", locks[0])
	// ZLOCK_HOLDS lists all locks of this process and its ancestors, as CHROOT@SEQUENCER. The chroot is escaped.
	holds := strings.Fields(j.Getenv("ZLOCK_HOLDS"))
	for i, h := range locks {
		if len(locks) > 1 {
			put(fmt.Sprintf("_%d", i+1), h)
		}
		holds = append(holds, url.PathEscape(j.chroot)+"@"+h.String())
	}
	set("ZLOCK_TASK", j.task)
	set("ZLOCK_GRACE", j.Grace().String())
	set("ZLOCK_HOLDS", strings.Join(holds, " "))
	// Remove variables about an ancestor's locks, also numbered ones. Only ZLOCK_HOLDS still names those locks.
	return append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "ZLOCK_SLOT") || slices.ContainsFunc(ours, func(our string) bool {
			return strings.HasPrefix(kv, our[:strings.IndexByte(our, '=')])
		})
	}), ours...)
}
