package audit

import "time"

// share is how many bytes of lines an address may still cause. It grows by shareRate in a second, up to
// shareMost. It keeps an address from crowding out the lines about others, and from filling the disk.
type share struct {
	left int64
	at   time.Time
	lost int64 // how many lines were lost since the last line about lost lines
}

const (
	shareRate = 8 << 20
	shareMost = 16 << 20
	// refusedWeight is how many times a line about a refused request counts: such a request costs the client
	// hardly anything.
	refusedWeight = 16

	sweepEvery = time.Second
	maxShares  = 10_000
)

// shareOf returns the share of an address, as it is now. It returns nil for lines of the server itself, which
// have no bound.
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
			addr = "others" // too many addresses have a share: all others have one together
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

// sweep writes a line for each address about which lines were lost. It forgets addresses whose share is full
// again.
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
