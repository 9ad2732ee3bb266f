package call

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// duration is a flag such as 10s, 1m30s, or a bare number of seconds.
type duration struct{ d *time.Duration }

// AddDuration adds a flag for a duration.
func AddDuration(fs *pflag.FlagSet, d *time.Duration, name, short, usage string) {
	fs.VarP(duration{d}, name, short, usage)
}

func (v duration) String() string {
	if *v.d == 0 {
		return ""
	}
	// Cut off zero seconds and minutes: 1m0s becomes 1m and 1h0m0s becomes 1h, but 20s must not become 2.
	s := v.d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// DurationText formats a duration in the syntax of flags.
func DurationText(d time.Duration) string { return duration{&d}.String() }

// Type returns the name by which pflag shows the type of the value.
func (v duration) Type() string { return "DURATION" }

func (v duration) Set(s string) error {
	d, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*v.d = d
	return nil
}

// longest is the longest duration that a flag may have. The sum of a few such durations does not overflow.
const longest = 1e9 * time.Second

// ParseDuration parses a duration in the syntax of flags.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if n, nerr := strconv.ParseFloat(s, 64); nerr == nil {
		d, err = time.Duration(n*float64(time.Second)), nil
		if n > 1e9 || n != n {
			err = strconv.ErrRange
		}
	}
	if err != nil || d < 0 || d > longest {
		return 0, fmt.Errorf("must be a duration such as 10s, or a number of seconds")
	}
	return d, nil
}
