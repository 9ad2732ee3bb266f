package recipe

import (
	"slices"
	"strconv"
	"strings"
)

// PermitName returns the name of a new permit with a number, see [SlotOf], without the number that the server
// appends. With 0 it is that of a permit that has none, as release 0.1.0 names all.
func PermitName(id ID, slot int) string {
	name := NodeName(LayoutCurator, RoleLease, id, "")
	if slot == 0 {
		return name
	}
	m, _ := MarkerOf(LayoutCurator, RoleLease)
	return strings.TrimSuffix(name, m) + strconv.Itoa(slot) + "-" + m
}

// SlotOf returns the number of a permit: that of the place which it has among the permits of its semaphore,
// from 1 on, and which no other permit has. It stands in the name, between the id and the marker. It is 0 for
// what other programs and release 0.1.0 make.
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

// cutSlot reads the number at the beginning of s. It is 0 if there is none.
func cutSlot(s string) (slot int, rest string) {
	digits := 0
	for digits < len(s) && digits < 9 && s[digits] >= '0' && s[digits] <= '9' {
		slot = slot*10 + int(s[digits]-'0')
		digits++
	}
	if digits == 0 || s[0] == '0' {
		return 0, s
	}
	return slot, s[digits:]
}

// isSlot reports whether s is a dash and the number of a permit.
func isSlot(s string) bool {
	n, rest := cutSlot(s[1:])
	return s[0] == '-' && n > 0 && rest == ""
}

// FreeSlots returns n numbers of permits, from 1 to the limit, that none of the permits has: the lowest, or
// with skip, which may be any number, those that come later and then again the lowest. There are enough of
// them if DecidePermits grants so many.
//
// The transaction that makes the permits writes the numbers into their names. The head of the queue makes its
// permits only while its place is there, so no other head chooses among the same. A try learns from
// TryPermits whether another has taken its number.
func FreeSlots(limit int, permits []string, n, skip int) []int {
	spare := limit - len(permits) - n
	if spare < 0 {
		return nil
	}
	taken := make(map[int]bool, len(permits))
	for _, name := range permits {
		taken[SlotOf(name)] = true
	}
	skip %= spare + 1
	free := make([]int, 0, n)
	for slot := 1; len(free) < n; slot++ {
		switch {
		case taken[slot]:
		case skip > 0:
			skip--
		default:
			free = append(free, slot)
		}
	}
	return free
}

// Unnumbered returns a permit without a number, empty if all have one.
func Unnumbered(permits []string) string {
	if at := slices.IndexFunc(permits, func(name string) bool { return SlotOf(name) == 0 }); at >= 0 {
		return permits[at]
	}
	return ""
}
