package recipe

import (
	"slices"
	"strconv"
	"strings"
)

// PermitName returns the name of a new permit with the number slot, see [SlotOf]. The server appends a
// sequence number to it. With 0 the permit has no number, as in release 0.1.0.
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

// cutSlot reads the number at the beginning of s, or 0 if there is none.
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

// FreeSlots returns n numbers, from 1 to the limit, that no permit has. They are the lowest free numbers, or,
// with skip, the lowest after the first skip free numbers. skip may be any number; FreeSlots reduces it so
// that n numbers remain. There are enough numbers if DecidePermits has granted n permits.
//
// The transaction that makes the permits writes the numbers into their names. The head of the queue makes its
// permits only while its place exists, so no other head chooses the same numbers. A try learns from
// TryPermits whether another permit has its number.
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

// Unnumbered returns a permit without a number, or "" if all permits have numbers.
func Unnumbered(permits []string) string {
	if at := slices.IndexFunc(permits, func(name string) bool { return SlotOf(name) == 0 }); at >= 0 {
		return permits[at]
	}
	return ""
}
