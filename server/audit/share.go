package audit

import "time"

// share is how many bytes of lines an address may still cause. It grows by shareRate bytes a second, up to
// shareMost. So one address cannot displace the lines of others, and takes only a bounded part of the disk.
type share struct {
	left int64
	at   time.Time
	lost int64 // how many lines were lost since the last line about lost lines
}

const (
	shareRate = 8 << 20
	shareMost = 16 << 20
	// refusedWeight is how many times each byte of a line about a refused request counts, because a refused
	// request costs its client hardly anything.
	refusedWeight = 16

	sweepEvery = time.Second
	maxShares  = 10_000
)

// shareOf returns the present share of an address. It returns nil for the server itself, whose lines are not
// bounded.
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
			addr = "others" // while so many addresses write, all further addresses have one share together
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

// sweep adds a line for each address that lost lines, and forgets the addresses whose share is full.
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
