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
	Sync        *float64   `json:"syncMs,omitempty"` // mean time to sync the server's log to disk
	OpenFiles   int64      `json:"openFiles,omitempty"`
	MaxFiles    int64      `json:"maxFiles,omitempty"`
	Certificate *time.Time `json:"certificateExpires,omitempty"`
	Problem     string     `json:"problem,omitempty"`
	Note        string     `json:"note,omitempty"`

	unreachable bool
	down        bool   // the server itself is down, so another call would not help
	config      string // the server's list of members
	uptime      time.Duration
	asked       time.Time // just before doctor read uptime
}

// trouble describes an unreachable server.
type trouble struct {
	Server  string `json:"server"`
	Problem string `json:"problem"`
}

// note() adds a harmless remark.
func (f *finding) note(format string, args ...any) {
	if f.Note != "" {
		f.Note += "; "
	}
	f.Note += fmt.Sprintf(format, args...)
}

// clockApart is how many seconds the clock of a server may differ from this machine's without a note.
const clockApart = 5.0

// judge() adds the problems that a client can see. A zlockd also reports those that only the server sees.
func (f *finding) judge(short bool, asked time.Duration) {
	if short {
		f.note("it grants a session timeout shorter than the %v asked for", asked)
	}
	if !f.Containers {
		f.note("the server has no container nodes: empty lock directories stay")
	}
	if f.Kind == "zookeeper" && f.Mode != "standalone" && f.Mode != "" {
		f.note("a follower cut off from its leader may answer for syncLimit ticks: the margin must exceed that")
	}
	if f.Offset > clockApart || f.Offset < -clockApart {
		way := "ahead of"
		if f.Offset < 0 {
			way = "behind"
		}
		f.note("its leader's clock is %.1fs %s this machine's: the times that zlock shows are wrong by "+
			"that much",
			max(f.Offset, -f.Offset), way)
	}
	if f.Certificate != nil {
		if left := time.Until(*f.Certificate); left < certificateSoon {
			f.note("its certificate %s", endsIn(left))
		}
	}
}
