// Package window keeps the last granted draws of a rate: a sliding window, its answers and its encoding.
//
// The package knows no nodes and no requests. The caller gives the time of each draw. A window never grants
// more draws in a period than the limit. To stay small it merges grants. A merged grant may count for too
// long a time, but never for too short a time.
package window

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Ask asks for one draw.
type Ask struct {
	Limit int64
	Per   int64   // the period, in ms
	Hash  [8]byte // hash of the request's secret, by which a repeated request is recognised
}

// Drawn is the answer to an Ask.
type Drawn struct {
	OK   bool
	Told bool  // an earlier request with the same secret was granted, so this draw does not count
	At   int64 // time of the grant, ms since 1970 by the cluster's clock
	Left int64 // how many more draws are free now
	Wait int64 // ms until the next draw is free, if this draw was refused
}

// Append appends the reply to a draw's request.
func (d *Drawn) Append(b []byte) []byte {
	b = jute.AppendBool(jute.AppendBool(b, d.OK), d.Told)
	return jute.AppendLong(jute.AppendLong(jute.AppendLong(b, d.At), d.Left), d.Wait)
}

// ReadDrawn reads the reply to a Draw.
func ReadDrawn(reply []byte) (d Drawn, err error) {
	in := jute.NewDecoder(reply)
	d = Drawn{OK: in.Bool(), Told: in.Bool(), At: in.Long(), Left: in.Long(), Wait: in.Long()}
	return d, in.Err()
}

// The bounds of a window.
const (
	windowMagic = "zlockd rate 1\n"
	Longest     = 24 * 60 * 60 * 1000 // ms

	// Each grant is a run of its own while the window has fewer than exactRuns runs; grants of the same time
	// share a run. After that, grants within keep/mergedRuns of each other share a run, too, and all of them
	// count until the last one stops counting. So a grant may count too long, but never too short a time.
	exactRuns  = 256
	mergedRuns = 128
	maxRuns    = exactRuns + 2*mergedRuns

	// The window remembers the secrets of draws for recentTime, but of at most maxRecent draws.
	recentTime = 60 * 1000 // ms
	maxRecent  = 500
)

// Window is a sliding window. Its runs are in order, the oldest first.
type Window struct {
	keep   int64 // how long a run counts after its last grant, in ms
	last   int64 // the time of the last draw, ms since 1970
	runs   []run
	recent string // the remembered draws, encoded: times, each with a hash
	newest string // the encoding of the draw that was granted last; recent does not contain it
}

// run is a group of grants. All of them count until the last one stops counting.
type run struct{ first, last, n int64 }

const recentSize = 16

// Rate returns the answer that a draw would get at a time, given the data of the rate's node, which may be
// empty.
func (d *Ask) Rate(data string, now int64) (Drawn, jute.ErrCode) {
	w, code := Read(data, d.Per)
	if code != jute.OK {
		return Drawn{}, code
	}
	return w.Draw(d, now), jute.OK
}

// Use says how much of a rate is used at a moment.
type Use struct {
	Per  int64 // ms, the length of the period
	Used int64 // draws in the period
	Wait int64 // ms until the next draw under the limit is free
}

// UseOf returns the use of a rate, given the data of its node. It draws nothing. A limit of 0 means that the
// limit is unknown. If `per` is 0, the period is the longest one for which the rate keeps draws.
func UseOf(data string, limit, per, now int64) (u Use, code jute.ErrCode) {
	w, code := Read(data, per)
	if code != jute.OK {
		return u, code
	}
	if per == 0 {
		per = w.keep
	}
	u = Use{Per: per, Used: w.used(max(now, w.last), per)}
	if limit > 0 && u.Used >= limit {
		u.Wait = w.freeAt(&Ask{Limit: limit, Per: per}) - now
	}
	return u, jute.OK
}

// New returns a window without draws, for periods up to `per`.
func New(per int64) Window { return Window{keep: per} }

// Lasts returns for how long the window needs its node after the last draw, in ms.
func (w *Window) Lasts() int64 { return max(w.keep, recentTime) }

// Counts reports whether a draw still counts, or is remembered, at a time.
func (w *Window) Counts(at int64) bool { return w.last > at-w.Lasts() }

// Read reads a window for a draw with the period `per`. If there is no data, it returns a new window for that
// period.
func Read(data string, per int64) (w Window, code jute.ErrCode) {
	if data == "" {
		return New(per), jute.OK
	}
	if !w.read(data) {
		return w, jute.BadArguments
	}
	if w.keep < per {
		return w, jute.BadVersion
	}
	return w, jute.OK
}

// Draw answers a draw at a time, and counts it if it is granted.
func (w *Window) Draw(d *Ask, at int64) (a Drawn) {
	now := max(at, w.last)
	w.runs = slices.DeleteFunc(w.runs, func(r run) bool { return r.last <= now-w.keep })
	for w.recent != "" && timeOf(w.recent) <= now-w.Lasts() {
		w.recent = w.recent[recentSize:]
	}
	a.Left = d.Limit - w.used(now, d.Per)
	if a.At, a.Told = w.known(d.Hash); a.Told {
		a.OK = true
	} else if a.Left > 0 {
		a.OK, a.At = true, now
		a.Left--
		w.count(now, d.Hash)
	} else {
		a.Wait = w.freeAt(d) - at
	}
	a.Left = max(a.Left, 0)
	return a
}

// used() returns how many draws count in the period that ends at the time `now`.
func (w *Window) used(now, per int64) (n int64) {
	for _, r := range w.runs {
		if r.last > now-per {
			n += r.n
		}
	}
	return n
}

// known() returns when the draw with a secret was granted, if it is remembered.
func (w *Window) known(hash [8]byte) (at int64, known bool) {
	for r := w.recent; r != ""; r = r[recentSize:] {
		if r[8:recentSize] == string(hash[:]) {
			return timeOf(r), true
		}
	}
	return 0, false
}

// timeOf returns the time of the first remembered draw.
func timeOf(recent string) (at int64) {
	for _, c := range []byte(recent[:8]) {
		at = at<<8 | int64(c)
	}
	return at
}

// freeAt returns when a draw that is refused now would be granted.
func (w *Window) freeAt(d *Ask) int64 {
	younger := int64(0)
	for _, r := range slices.Backward(w.runs) {
		if younger += r.n; younger >= d.Limit {
			return r.last + d.Per
		}
	}
	return w.last // the draw was refused although no other draw counts: the limit is 0
}

// count() records a grant.
func (w *Window) count(now int64, hash [8]byte) {
	w.last = now
	if n := len(w.runs); n > 0 && (w.runs[n-1].first == now ||
		n >= exactRuns && now-w.runs[n-1].first < w.keep/mergedRuns) {
		w.runs[n-1].last = now
		w.runs[n-1].n++
	} else {
		w.runs = append(w.runs, run{now, now, 1})
	}
	w.newest = string(append(jute.AppendLong(nil, now), hash[:]...))
	w.recent = w.recent[max(len(w.recent)-(maxRecent-1)*recentSize, 0):]
}

// The window's encoding is its magic line, and then
//
//	keep · last · count · run* · recent*
//	run    := the window's last - the run's last · the run's last - its first · n
//	recent := time i64 · hash 8 bytes
//
// All fields except recent are varints.

// Append appends the encoding.
func (w *Window) Append(b []byte) []byte {
	put := func(v int64) { b = binary.AppendUvarint(b, uint64(v)) }
	b = append(b, windowMagic...)
	put(w.keep)
	put(w.last)
	put(int64(len(w.runs)))
	for _, r := range w.runs {
		put(w.last - r.last)
		put(r.last - r.first)
		put(r.n)
	}
	return append(append(b, w.recent...), w.newest...)
}

// AppendBuffer appends the encoding as a jute buffer of a request.
func (w *Window) AppendBuffer(b []byte) []byte {
	at := len(b)
	b = w.Append(jute.AppendInt(b, 0))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// read() reads a window. It returns false if the data is something else: any client with the right to write
// the node may have put other data there.
func (w *Window) read(data string) bool {
	text, ok := strings.CutPrefix(data, windowMagic)
	get := func(most int64) int64 {
		v, n := uint64(0), 0
		for shift := 0; n < len(text) && shift < 63; shift += 7 {
			c := text[n]
			n++
			if v |= uint64(c&0x7f) << shift; c < 0x80 {
				text = text[n:]
				if v > uint64(most) {
					break
				}
				return int64(v)
			}
		}
		ok, text = false, ""
		return 0
	}
	const most = 1 << 52
	w.keep, w.last = get(Longest), get(most)
	n := get(maxRuns)
	w.runs = make([]run, 0, n+1)
	for range n {
		last := w.last - get(w.last)
		r := run{last - get(last), last, get(most / maxRuns)}
		if n := len(w.runs); n > 0 && r.first < w.runs[n-1].last {
			return false
		}
		w.runs = append(w.runs, r)
	}
	w.recent = text
	return ok && w.keep > 0 && len(text)%recentSize == 0 && len(text) <= maxRecent*recentSize
}
