package recipe

import (
	"fmt"
	"slices"
)

// DecidePermits decides for a contender that wants n permits while used of them are taken: it is granted
// them or waits for any to come back. The head of the queue asks it, and a try before it makes a node.
func DecidePermits(limit, used, n int) (Do, error) {
	switch {
	case n > limit:
		return 0, fmt.Errorf("%w: %d permits of %d", ErrInvalid, n, limit)
	case used+n <= limit:
		return Grant, nil
	}
	return Wait, nil
}

// PermitVerdict is what becomes of the permits that a try has made.
type PermitVerdict uint8

const (
	PermitsRefused PermitVerdict = iota // other permits are in use
	PermitsGranted
	PermitsUnsure // a contender passes the queue: it may be about to make permits
	PermitsTaken  // another permit has one of the numbers
)

// TryPermits decides about a try that has made its permits, own, without a place in the semaphore's queue.
// queued is how many contenders a list of the queue showed that was made after the permits, and permits is a
// list made after that one. quiet says that no contender came or went since before the try made its permits.
//
// The head of the queue may count the permits first and make its own then, as release 0.1.0 does. While
// such a head is there, it may not have counted the try's. So a try is not granted while the queue has a
// contender. A head that left before the list has made its permits: they are in the list, after the
// try's. So the try counts all permits, unless the queue was quiet. Then its own place is enough: no two
// contenders of which each is within the limit by its place are more than the limit. Curator's head makes
// its permit first and counts all, so beside it the try is only too strict.
//
// It is the same with the numbers. Of two tries with one number the later one sees the other's permit. A head
// takes the number that it wants, so a try yields to any permit with its number, unless the queue was quiet:
// then all are of tries.
func TryPermits(limit int, permits, own []string, queued int, quiet bool) PermitVerdict {
	last, _, ok := ParseName(own[len(own)-1])
	ahead, all, found, taken := 0, 0, 0, false
	for _, name := range permits {
		p, _, numbered := ParseName(name)
		before := !numbered || Compare(p, last) <= 0
		if all++; before {
			ahead++
		}
		if slices.Contains(own, name) {
			found++
			continue
		}
		slot := SlotOf(name)
		same := func(o string) bool { return SlotOf(o) == slot }
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
