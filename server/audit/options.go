package audit

import "time"

// Options are the options of Open.
type Options struct {
	Name string           // path of a file, or "stderr" or "syslog"
	Now  func() time.Time // the clock for the log's lines; nil: time.Now
	Size int64            // when a file has this many bytes, a new file replaces it; 0: never
	Keep int              // how many older files are kept
	// Room returns an error while nothing may be written, for example because the disk has little free space. If
	// Room is nil, writing is always allowed.
	Room func() error
}
