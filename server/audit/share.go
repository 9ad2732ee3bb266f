package audit

import "time"

// share is what an address may still write: a bucket that fills by shareRate bytes a second up to
// shareMost. The lines of one address cost the others none of theirs, and a bounded part of the disk.
type share struct {
	left int64
	at   time.Time
	lost int64 // lines, since the log last told of them
}

const (
	shareRate = 8 << 20
	shareMost = 16 << 20
	// refusedWeight is how often a line about a refused request counts: the request cost its client
	// nothing else.
	refusedWeight = 16

	sweepEvery = time.Second
	maxShares  = 10_000
)

// shareOf returns the share of an address as of now; nil: lines of the server itself have no bound.
func (s *sink) shareOf(addr string, now time.Time) *share {
	if addr == "" {
		return nil
	}
	sh := s.shares[addr]
	if sh == nil {
		if s.shares == nil {
			s.shares = make(map[string]*share)
		}
		if len(s.shares) >= maxShares {
			addr = "others" // who come while so many write share one bucket
			if sh = s.shares[addr]; sh != nil {
				sh.fill(now)
				return sh
			}
		}
		sh = &share{left: shareMost, at: now}
		s.shares[addr] = sh
		return sh
	}
	sh.fill(now)
	return sh
}

func (sh *share) fill(now time.Time) {
	if gone := now.Sub(sh.at); gone > 0 {
		sh.left = min(shareMost, sh.left+int64(gone.Seconds()*shareRate))
		sh.at = now
	}
}

// sweep adds a line for each address that lost some, and forgets those that have their whole share.
func (s *sink) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery && !s.closed {
		return
	}
	s.swept = now
	for addr, sh := range s.shares {
		if sh.lost > 0 && len(s.waiting) < maxWaiting {
			s.waiting = s.told(s.waiting, addr, sh.lost)
			s.lines++
			sh.lost = 0
		}
		if sh.fill(now); sh.left == shareMost && sh.lost == 0 {
			delete(s.shares, addr)
		}
	}
}
