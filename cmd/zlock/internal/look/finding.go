package look

import (
	"fmt"
	"time"
)

// finding holds the results of doctor for one server.
type finding struct {
	Server      string     `json:"server"`
	Kind        string     `json:"kind,omitempty"`
	Version     string     `json:"version,omitempty"`
	Mode        string     `json:"mode,omitempty"`
	Timeout     float64    `json:"sessionTimeoutSeconds"`
	RoundTrip   float64    `json:"roundTripMs"`
	Offset      float64    `json:"clockOffsetSeconds"`
	Containers  bool       `json:"containers"`
	Multi       bool       `json:"multi"`
	Margin      float64    `json:"marginSeconds"`
	Sync        *float64   `json:"syncMs,omitempty"` // mean time of a sync of the log
	OpenFiles   int64      `json:"openFiles,omitempty"`
	MaxFiles    int64      `json:"maxFiles,omitempty"`
	Certificate *time.Time `json:"certificateExpires,omitempty"`
	Problem     string     `json:"problem,omitempty"`
	Note        string     `json:"note,omitempty"`

	unreachable bool
	down        bool   // the server is down; the mistake is not in this call
	config      string // the server's list of members
	uptime      time.Duration
	asked       time.Time // just before doctor read uptime
}

// trouble describes an unreachable server.
type trouble struct {
	Server  string `json:"server"`
	Problem string `json:"problem"`
}

// note adds a harmless remark.
func (f *finding) note(format string, args ...any) {
	if f.Note != "" {
		f.Note += "; "
	}
	f.Note += fmt.Sprintf(format, args...)
}
