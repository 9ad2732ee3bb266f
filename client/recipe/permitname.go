package recipe

import (
	"slices"
	"strconv"
	"strings"
)

// PermitName returns the name of a new permit whose number is `slot`, see [SlotOf]. The server appends a
// sequence number to the name. If `slot` is 0, the permit has no number, as in release 0.1.0.
func PermitName(id ID, slot int) string {
	name := NodeName(LayoutCurator, RoleLease, id, "")
	if slot == 0 {
		return name
	}
	m, _ := MarkerOf(LayoutCurator, RoleLease)
	return strings.TrimSuffix(name, m) + strconv.Itoa(slot) + "-" + m
}

// SlotOf returns the number of a permit. Permits of a semaphore have different numbers, from 1 to the limit.
// The number is in the name, between the id and the marker. It is 0 for permits of other programs and of
// release 0.1.0.
func SlotOf(name string) int {
	rest, ok := strings.CutPrefix(name, "_c_")
	if !ok || len(rest) <= 37 || !isSelfUUID(rest) || rest[36] != '-' {
		return 0
	}
	n, rest := cutSlot(rest[37:])
	if m, _ := MarkerOf(LayoutCurator, RoleLease); !strings.HasPrefix(rest, "-"+m) {
		return 0
	}
	return n
}

// LimitOf reads the number of permits from a semaphore's data. kazoo stores a number, package client stores a
// record, and Curator stores nothing.
func LimitOf(data string) int {
	if n, err := strconv.Atoi(data); err == nil && len(data) < 10 && n > 0 {
		return n
	}
	rec, _ := ParseRecord([]byte(data))
	return max(rec.Limit, 0)
}

// KazooQueue is the suffix of the name of a kazoo semaphore's queue, which is beside the semaphore.
const KazooQueue = "-__lock__"

// IsKazooSemaphore reports whether a directory with such children and data is kazoo's semaphore:
// the data are a number, and the children are ids.
func IsKazooSemaphore(names []string, data string) bool {
	n, err := strconv.Atoi(data)
	other := func(name string) bool { _, ok := ParseHex(name); return !ok }
	return err == nil && n > 0 && !slices.ContainsFunc(names, other)
}
