package report

import (
	"math"
	"strconv"
	"strings"
)

// Decimal prints f as Java prints a double that is rounded to four places: with one to four decimals.
func Decimal(f float64) string {
	s := Short(f)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Short prints f with at most four decimals, and none that are zero at the end. NaN and infinity become 0,
// because monitoring systems must be able to parse each line.
func Short(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "0"
	}
	if math.Abs(f) < 1e11 { // a larger number has hardly more than four decimals
		f = math.Round(f*1e4) / 1e4
	}
	if f == 0 {
		f = 0 // avoids -0
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// Hex prints a session id or zxid as ZooKeeper does. It prints a negative number as its 64 bits.
func Hex(v int64) string { return "0x" + strconv.FormatUint(uint64(v), 16) }

// Flag is the value of a metric that says yes or no.
func Flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
