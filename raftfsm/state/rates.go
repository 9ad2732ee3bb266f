package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// A rate is a node whose data is a sliding window: the times of the last granted draws. Apply grants a draw
// if it granted fewer draws than the limit in the period before it. One log entry decides and records the
// draw. The draw's time is that of the entry, or that of the last draw if that is later. So a leader whose
// clock lags grants nothing twice.

// Draw asks for one draw from a rate.
type Draw struct {
	Path  string
	Limit int64
	Per   int64   // ms
	Hash  [8]byte // hash of the request's secret, by which a repeated request is recognised

	Identity string // the identity that is charged for the rate's nodes if this draw makes them
	RateBounds
}

// Drawn is the answer to a Draw.
type Drawn struct {
	OK   bool
	Told bool  // an earlier request with the same secret was granted; this draw counts nothing
	At   int64 // time of the grant, ms since 1970 by the cluster's clock
	Left int64 // how many more draws are free now
	Wait int64 // ms until the next draw is free, if this one was refused
}

// drawLane is the session id of draws, which no client has. Draws share one lane of the stream, so a flood of
// them delays only draws.
const drawLane = -3

// Request returns the request for the draw. The outcome's Reply is for ReadDrawn. BADARGUMENTS says that the
// node has other data, BADVERSION that its window is shorter than the draw's time, UNIMPLEMENTED that the
// cluster may not have tickets yet, QUOTAEXCEEDED with a text that a bound is reached; other codes are those
// of a write to the node, or of its creation.
func (d *Draw) Request(ids []jute.ID) Request {
	b := jute.AppendLong(jute.AppendLong(jute.AppendString(nil, d.Path), d.Limit), d.Per)
	b = jute.AppendString(append(b, d.Hash[:]...), d.Identity)
	b = jute.AppendInt(jute.AppendInt(b, d.RateBounds.All), d.RateBounds.Identity)
	return Request{Session: drawLane, Op: OpDraw, IDs: ids, Body: b}
}

func decodeDraw(body []byte) (d Draw, err error) {
	in := jute.NewDecoder(body)
	path, _ := in.String()
	d.Path = strings.Clone(path)
	d.Limit, d.Per = in.Long(), in.Long()
	for i := range d.Hash {
		d.Hash[i] = in.Byte()
	}
	identity, _ := in.String()
	d.Identity = strings.Clone(identity)
	d.RateBounds = RateBounds{All: in.Int(), Identity: in.Int()}
	if in.Err() != nil || d.Limit < 1 || d.Per < 1 || d.Per > maxWindow {
		return d, fmt.Errorf("%w: draw: %v", ErrCorrupt, in.Err())
	}
	return d, nil
}

// ReadDrawn reads the reply to a Draw.
func ReadDrawn(reply []byte) (d Drawn, err error) {
	in := jute.NewDecoder(reply)
	d = Drawn{OK: in.Bool(), Told: in.Bool(), At: in.Long(), Left: in.Long(), Wait: in.Long()}
	return d, in.Err()
}

// draw runs a Draw.
func (s *State) draw(r *Request, to Sink) error {
	d, err := decodeDraw(r.Body)
	if err != nil {
		return err
	}
	n, there := s.tree.Find(d.Path)
	w := window{keep: d.Per}
	if there {
		switch {
		case !n.May(r.IDs, jute.PermWrite):
			s.out.Code = jute.NoAuth
			return nil
		case !MayBeRate(n):
			s.out.Code = jute.BadArguments
			return nil
		}
		data, _ := n.Data(acl.Super)
		if w, s.out.Code = windowOf(data, d.Per); s.out.Code != jute.OK {
			return nil
		}
	}
	answer := w.draw(&d, s.change.Time)
	if answer.OK && !answer.Told && !s.keepWindow(r.IDs, &d, there, &w, to) {
		return nil
	}
	b := jute.AppendBool(jute.AppendBool(s.reply[:0], answer.OK), answer.Told)
	s.reply = jute.AppendLong(jute.AppendLong(jute.AppendLong(b, answer.At), answer.Left), answer.Wait)
	s.out.Reply = s.reply
	return nil
}

// keepWindow writes a window to its node, and makes the node if it is missing.
func (s *State) keepWindow(ids []jute.ID, d *Draw, there bool, w *window, to Sink) bool {
	op, nodes := jute.OpSetData, int32(0)
	if there {
		s.draft = jute.AppendInt(w.appendBuffer(jute.AppendString(s.draft[:0], d.Path)), -1)
	} else {
		missing := Missing(s.tree, d.Path)
		op, nodes = jute.OpMulti, int32(len(missing))+1
		if why := s.begun.tooMany(d, nodes); why != "" {
			s.out.Code = jute.QuotaExceeded
			s.reply = append(s.reply[:0], why...)
			s.out.Reply = s.reply
			return false
		}
		s.draft = s.newWindow(parents(missing), d.Path, w)
	}
	s.begin()
	s.change.Session, s.change.IDs = 0, ids
	reply, code, changed := s.tree.Apply(&s.change, op, s.draft, s.reply[:0])
	if s.reply = reply; changed {
		s.commit(to)
		if !there {
			s.begun.add(d.Path, d.Identity, nodes)
		}
	} else if s.out.Code = code; code == jute.OK {
		s.out.Code = FirstFailure(reply)
	}
	return changed
}

// newWindow returns the transaction that makes the node of a window, after the operations in above, which
// make its parents. The node is a TTL node: the server removes it once its last draw no longer counts.
func (s *State) newWindow(above []byte, path string, w *window) []byte {
	op, flags := jute.OpCreateTTL, jute.FlagPersistentTTL
	if s.change.NoTTL {
		op, flags = jute.OpCreate, jute.FlagPersistent
	}
	ops := appendCreate(above, op, path, w.append(nil), flags)
	if op == jute.OpCreateTTL {
		ops = jute.AppendLong(ops, max(w.keep, recentTime)+1)
	}
	return jute.AppendMultiHeader(ops, jute.OpError, true, -1)
}

// MayBeRate reports whether a node may hold a window: it must not go before its draws stop counting, and it
// must not be the directory of a lock.
func MayBeRate(n tree.Ref) bool { return n.Kind() != tree.ContainerNode && n.Session() == 0 }

// counts reports whether draws from a rate still count. The time of the last draw may be later than the
// node's: a leader whose clock lags writes the node at its own time, but draws have the window's time.
func (s *State) counts(path string) bool {
	n, there := s.tree.Find(path)
	if !there || !s.ticketing { // release 0.1.0 knows no rates
		return false
	}
	data, _ := n.Data(acl.Super)
	w, code := windowOf(data, 1)
	return code == jute.OK && w.last > s.change.Time-max(w.keep, recentTime)
}

// The bounds of a window.
const (
	windowMagic = "zlockd rate 1\n"
	maxWindow   = 24 * 60 * 60 * 1000 // ms

	// A window has the exact times of its last exactRuns grants, or of more if several share a time. Older
	// grants within 1/mergedRuns of the window's time are merged, with the time of the last of them. So a
	// grant may count for too long, never for too short.
	exactRuns  = 256
	mergedRuns = 128
	maxRuns    = exactRuns + 2*mergedRuns

	// How long the window remembers draws with their secrets, and how many of them.
	recentTime = 60 * 1000 // ms
	maxRecent  = 500
)

// window is a sliding window. Its runs are in order, the oldest first.
type window struct {
	keep   int64 // ms, how long a run counts
	last   int64 // the time of the last draw, ms since 1970
	runs   []run
	recent string // the remembered draws, encoded: times, each with a hash
	newest string // the encoding of the added draw
}

// run is a number of grants that count until the time of the last of them is over.
type run struct{ first, last, n int64 }

const recentSize = 16

// Rate returns the answer that a draw would get at a time, given the data of the rate's node, which may be
// empty.
func (d *Draw) Rate(data string, now int64) (Drawn, jute.ErrCode) {
	w, code := windowOf(data, d.Per)
	if code != jute.OK {
		return Drawn{}, code
	}
	return w.draw(d, now), jute.OK
}

// Use says how much of a rate is used at a moment.
type Use struct {
	Per  int64 // ms, the length of the period
	Used int64 // draws in the period
	Wait int64 // ms until the next draw under the limit is free
}

// UseOf returns the use of a rate, given the data of its node. It draws nothing. A limit of 0 means that the
// limit is unknown; a time of 0 means the longest that the rate keeps.
func UseOf(data string, limit, per, now int64) (u Use, code jute.ErrCode) {
	w, code := windowOf(data, per)
	if code != jute.OK {
		return u, code
	}
	if per == 0 {
		per = w.keep
	}
	u = Use{Per: per, Used: w.used(max(now, w.last), per)}
	if limit > 0 && u.Used >= limit {
		u.Wait = w.freeAt(&Draw{Limit: limit, Per: per}) - now
	}
	return u, jute.OK
}

// windowOf reads a window for a draw over a time. A new window has that time.
func windowOf(data string, per int64) (w window, code jute.ErrCode) {
	if data == "" {
		return window{keep: per}, jute.OK
	}
	if !w.read(data) {
		return w, jute.BadArguments
	}
	if w.keep < per {
		return w, jute.BadVersion
	}
	return w, jute.OK
}

// draw answers a draw at a time, and counts it if it is granted.
func (w *window) draw(d *Draw, at int64) (a Drawn) {
	now := max(at, w.last)
	w.runs = slices.DeleteFunc(w.runs, func(r run) bool { return r.last <= now-w.keep })
	for w.recent != "" && timeOf(w.recent) <= now-max(w.keep, recentTime) {
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

// used returns how many draws count in the period that ends at now.
func (w *window) used(now, per int64) (n int64) {
	for _, r := range w.runs {
		if r.last > now-per {
			n += r.n
		}
	}
	return n
}

// known returns when the draw with a secret was granted, if it is remembered.
func (w *window) known(hash [8]byte) (at int64, known bool) {
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
func (w *window) freeAt(d *Draw) int64 {
	younger := int64(0)
	for _, r := range slices.Backward(w.runs) {
		if younger += r.n; younger >= d.Limit {
			return r.last + d.Per
		}
	}
	return w.last // the draw asks for more than the limit allows
}

// count records a grant.
func (w *window) count(now int64, hash [8]byte) {
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
//	run    := last before the end of the window · last - first · n
//	recent := time i64 · hash 8 bytes
//
// All fields except recent are varints.

func (w *window) append(b []byte) []byte {
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

// appendBuffer appends the encoding as a jute buffer of a request.
func (w *window) appendBuffer(b []byte) []byte {
	at := len(b)
	b = w.append(jute.AppendInt(b, 0))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// read reads a window, or reports that the data is something else: any client that may write the node may
// have written it.
func (w *window) read(data string) bool {
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
	w.keep, w.last = get(maxWindow), get(most)
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
