package ticket

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestMomentsAsPeopleWriteThem(t *testing.T) {
	friday := time.Date(2026, 11, 27, 19, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"": "", "18:00": "2026-11-28T18:00:00Z",
		"20:00": "2026-11-27T20:00:00Z", "FRI-18:00": "2026-12-04T18:00:00Z",
		"sat-09:30":                 "2026-11-28T09:30:00Z",
		"2026-12-24T18:00:00+01:00": "2026-12-24T17:00:00Z"} {
		got := must.Get(moment(text, friday))(t)
		expect.Equal(t, got, want, "%q", text)
	}
	for _, text := range []string{"tomorrow", "FREITAG-18:00", "25:00", "-"} {
		_, err := moment(text, friday)
		must.Fails(t, err, "%q", text)
	}
}
