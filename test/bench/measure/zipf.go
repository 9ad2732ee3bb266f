package measure

import (
	"math"
	"math/rand/v2"
)

// Zipf draws ranks of keys from a zipfian distribution with the constant of YCSB; see Gray and others,
// "Quickly generating billion-record synthetic databases", 1994.
type Zipf struct {
	n         int
	zeta, eta float64
}

const theta = 0.99

// NewZipf returns the distribution over n ranks.
func NewZipf(n int) *Zipf {
	z := &Zipf{n: n}
	for i := range n {
		z.zeta += 1 / math.Pow(float64(i+1), theta)
	}
	z.eta = (1 - math.Pow(2/float64(n), 1-theta)) / (1 - (1+math.Pow(0.5, theta))/z.zeta)
	return z
}

// Next draws a rank; 0 is the one drawn most often.
func (z *Zipf) Next() int {
	u := rand.Float64()
	switch v := u * z.zeta; {
	case v < 1:
		return 0
	case v < 1+math.Pow(0.5, theta):
		return 1
	}
	return min(int(float64(z.n)*math.Pow(z.eta*u-z.eta+1, 1/(1-theta))), z.n-1)
}
