package turns

import (
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// DecidePermits decides for a contender that wants `n` permits while `used` permits are taken: grant, or wait
// for a release. The head of the queue calls it. A contender that may not wait calls it before it makes a
// node.
func DecidePermits(limit, used, n int) (Do, error) {
	switch {
	case n > limit:
		return 0, fmt.Errorf("%w: %d permits are wanted, but the semaphore has %d", recipe.ErrInvalid, n, limit)
	case used+n <= limit:
		return Grant, nil
	}
	return Wait, nil
}

// PermitVerdict is the verdict on permits that were made without a place in the semaphore's queue.
type PermitVerdict uint8

const (
	PermitsRefused PermitVerdict = iota // other permits are in use
	PermitsGranted
	PermitsUnsure // a contender is at the head of the queue and may be about to make permits
	PermitsTaken  // another permit has one of the numbers
)

// TryPermits decides about a try: a call that may not wait and has no place in the semaphore's queue. The try
// has made its permits, `own`. Then it has listed the queue, which had `queued` contenders, and after that
// the permits. If `quiet` is set, the queue has not changed since a time before the try made its permits.
//
// The head of the queue may count the permits before it makes its own, as release 0.1.0 does. Then the head
// may not see the permits of the try. So no try is granted while the queue has a contender. If a head left
// the queue before the try listed the queue, that head has made its permits already, and the list shows them
// after the try's permits. So the try counts all permits, unless the queue was quiet. In a quiet queue only
// other tries compete. Then the try counts only the permits up to its own last one: tries whose permits are
// all among the first `limit` ones cannot hold more than `limit` permits. Curator's head makes its permit
// first and then counts all permits, so beside such a head the try is stricter than necessary.
//
// The same holds for the numbers of the permits. If two tries have the same number, the later try sees the
// permit of the earlier one. A head takes any free number, so a try gives way to every permit with its
// number. If the queue was quiet, later permits belong to tries, which give way themselves, so the try gives
// way only to earlier permits.
func TryPermits(limit int, permits, own []string, queued int, quiet bool) PermitVerdict {
	last, _, ok := recipe.ParseName(own[len(own)-1])
	ahead, all, found, taken := 0, 0, 0, false
	for _, name := range permits {
		p, _, numbered := recipe.ParseName(name)
		before := !numbered || recipe.Compare(p, last) <= 0
		if all++; before {
			ahead++
		}
		if slices.Contains(own, name) {
			found++
			continue
		}
		slot := recipe.SlotOf(name)
		same := func(o string) bool { return recipe.SlotOf(o) == slot }
		taken = taken || slot > 0 && (before || !quiet) && slices.ContainsFunc(own, same)
	}
	switch {
	case !ok || found < len(own) || ahead > limit:
		return PermitsRefused
	case queued > 0:
		return PermitsUnsure
	case all > limit && !quiet:
		return PermitsUnsure
	case taken:
		return PermitsTaken
	}
	return PermitsGranted
}

// FreeSlots returns n numbers, from 1 to the limit, that no permit has. It skips `skip` free numbers and
// returns the lowest free numbers after them. The argument `skip` may be any number; FreeSlots reduces it so
// that n numbers remain. There are enough numbers if DecidePermits has granted n permits.
//
// The transaction that makes the permits writes the numbers into their names. The head of the queue makes its
// permits only while its place exists, so no other head chooses the same numbers. A contender without a place
// learns from TryPermits whether another permit has its number.
func FreeSlots(limit int, permits []string, n, skip int) []int {
	spare := limit - len(permits) - n
	if spare < 0 {
		return nil
	}
	taken := make(map[int]bool, len(permits))
	for _, name := range permits {
		taken[recipe.SlotOf(name)] = true
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

// Unnumbered returns a permit without a number. It returns "" if all permits have numbers.
func Unnumbered(permits []string) string {
	if at := slices.IndexFunc(permits, func(name string) bool { return recipe.SlotOf(name) == 0 }); at >= 0 {
		return permits[at]
	}
	return ""
}
