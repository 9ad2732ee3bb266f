package recipe

import "fmt"

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
)

// TryPermits decides about a try that has made its permits, the last of which is named own, without a
// place in the semaphore's queue. queued is how many contenders a list of the queue showed that was made
// after the permits, and permits is a list made after that one. quiet says that no contender came or went
// since before the try made its permits.
//
// The head of the queue may count the permits first and make its own then, as release 0.1.0 does. While
// such a head is there, it may not have counted the try's. So a try is not granted while the queue has a
// contender. A head that left before the list has made its permits: they are in the list, after the
// try's. So the try counts all permits, unless the queue was quiet. Then its own place is enough: no two
// contenders of which each is within the limit by its place are more than the limit. Curator's head makes
// its permit first and counts all, so beside it the try is only too strict.
func TryPermits(limit int, permits []string, own string, queued int, quiet bool) PermitVerdict {
	last, _, ok := ParseName(own)
	ahead, all, found := 0, 0, false
	for _, name := range permits {
		p, _, numbered := ParseName(name)
		if all++; !numbered || Compare(p, last) <= 0 {
			ahead++
		}
		found = found || name == own
	}
	switch {
	case !ok || !found || ahead > limit:
		return PermitsRefused
	case queued > 0:
		return PermitsUnsure
	case all <= limit || quiet:
		return PermitsGranted
	}
	return PermitsUnsure
}
