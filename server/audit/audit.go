// Package audit writes a line for each change that a client or an operator asks for, whatever its
// result, in the form of ZooKeeper's audit log.
package audit

import (
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/tree"
)

// Log is an audit log. Its methods may be called by several goroutines at once, and do not wait
// for the disk.
type Log struct {
	sink  sink
	now   func() time.Time
	owner string // the owner of the process

	second int64  // the second that `stamp` shows; sink.mu guards both
	stamp  []byte // the time of the last line as text, to the second
}

// Open opens the log.
func Open(o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	l := &Log{now: o.Now, owner: "zlockd"}
	l.sink = sink{open: opener(&o), room: o.Room, now: o.Now, told: l.appendLost}
	if u, err := user.Current(); err == nil {
		l.owner = u.Username
	}
	if err := l.sink.start(); err != nil {
		return nil, err
	}
	l.Add(&Event{User: l.owner, Operation: "serverStart"})
	return l, nil
}

// Try returns the error that Open would return. If it makes a file for that, it removes the file again.
func Try(name string) error {
	_, missing := os.Stat(name)
	w, err := opener(&Options{Name: name})()
	if err != nil {
		return err
	}
	if err = w.Close(); missing != nil {
		_ = os.Remove(name) // Open made it; for stderr and syslog there is no such file
	}
	return err
}

// Reopen opens the log's file again, because another program has moved the old file away.
func (l *Log) Reopen() { l.sink.reopenLog() }

// Close writes the waiting lines and closes the log.
func (l *Log) Close() {
	l.Add(&Event{User: l.owner, Operation: "serverStop", Result: invoked})
	l.sink.close()
}

// Figures counts the lines of a log that were written and lost.
type Figures struct {
	Written, Lost int64
	LostAt        time.Time // when a line was last lost
	Problem       error     // why writing the log fails; nil: writing works
	Outgrows      error     // why the file exceeds its size limit, although lines are written; nil: it does not
}

// Figures returns the counts so far.
func (l *Log) Figures() Figures {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	return Figures{l.sink.written, l.sink.lost, l.sink.lostAt, l.sink.problem, l.sink.outgrows}
}

// Results of a request that did not succeed.
const (
	failure = "failure"
	invoked = "invoked" // the server does not know whether the request was carried out
)

// Add writes an event. The length of its line is taken from the share of the address that caused it.
func (l *Log) Add(e *Event) {
	weight := int64(1)
	if e.Result == failure {
		weight = refusedWeight
	}
	l.sink.add(e.IP, weight, func(b []byte) []byte { return appendEvent(l.appendTime(b), e) })
}

// Ended writes a line for each ephemeral node that has ended with its session. It fits the field
// options.Options.Ended.
func (l *Log) Ended(session int64, events []tree.Event) {
	var paths []string // copied, because the caller uses the list of events again
	var whole []int    // by path: its length before it was cut
	size := 0
	for i := range events {
		if events[i].Type == jute.EventDeleted {
			path := events[i].Path
			if len(path) > 2*maxValue {
				path = strings.Clone(path[:2*maxValue])
			}
			paths, whole = append(paths, path), append(whole, len(events[i].Path))
			size += len(path) + 24
		}
	}
	if len(paths) == 0 {
		return
	}
	l.sink.mu.Lock()
	at := l.appendTime(nil)
	l.sink.mu.Unlock()
	l.sink.addBulk(bulk{len(paths), size, func(b []byte, line int) []byte {
		return appendEvent(append(b, at...), &Event{Session: session, User: l.owner, Path: paths[line],
			whole: whole[line], Operation: "ephemeralZNodeDeletionOnSessionCloseOrExpire"})
	}})
}

// Request writes a line for each change that a client's request asks for, and for a login that failed. It
// fits the field options.Options.Follow.
func (l *Log) Request(r *observe.Request) {
	e := Event{Session: r.Session, IP: r.Addr, IDs: r.IDs}
	switch {
	case r.Unknown: // the request may have been carried out, or may be carried out later
		e.Result = invoked
	case r.Code != jute.OK || r.Refused:
		e.Result = failure
	}
	if r.Divided { // the client's reply has only a code, as for a missing right: give the true reason here
		e.Request = "refused by --one-layout"
	}
	switch r.Op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete,
		jute.OpDeleteContainer, jute.OpSetData, jute.OpSetACL:
		d := jute.NewDecoder(r.Body)
		if e.one(&d, r.Op); d.Err() != nil {
			return // the request cannot be parsed
		}
		if reply := jute.NewDecoder(r.Reply); e.Result == "" && e.Type != "" {
			if made, ok := reply.String(); ok { // of a sequential node, only the reply has the whole path
				e.Path = made
			}
		}
	case jute.OpMulti:
		if e.Result == "" {
			l.multi(&e, r)
			return
		}
		if r.Code == jute.MarshallingError {
			return
		}
		e.Operation = "multiOperation"
	case jute.OpReconfig:
		e.Operation = "reconfig"
	case jute.OpAuth, jute.OpSASL:
		if e.Result == "" {
			return
		}
		e.Operation = "login"
	default:
		return
	}
	l.Add(&e)
}

// one() sets the fields of the event from a request that makes one change.
func (e *Event) one(d *jute.Decoder, op jute.OpCode) {
	switch op {
	case jute.OpDelete, jute.OpDeleteContainer: // the second is refused, but logged
		e.Operation, e.Path = "delete", d.PathVersion().Path
	case jute.OpSetData:
		e.Operation, e.Path = "setData", d.SetDataRequest().Path
	case jute.OpSetACL:
		r := d.SetACLRequest()
		e.Operation, e.Path, e.ACL = "setAcl", r.Path, aclText(r.ACL)
	default:
		r := d.CreateRequest(op)
		e.Operation, e.Path, e.Type = "create", r.Path, modes[r.Flags]
		if op == jute.OpCreateTTL && r.Flags < 5 {
			e.Type = modes[5] // another type with a time to live is refused: log the simplest
		} else if e.Type == "" {
			e.Type = "unknown"
		}
	}
}

// modes are the names of the flags of a create.
var modes = map[int32]string{0: "persistent", 1: "ephemeral", 2: "persistent_sequential",
	3: "ephemeral_sequential", 4: "container", 5: "persistent_with_ttl", 6: "persistent_sequential_with_ttl"}

// multi writes a line for each change of a multi. If the multi was refused, it changed nothing, and multi
// writes a single line.
func (l *Log) multi(e *Event, r *observe.Request) {
	in, out := jute.NewDecoder(r.Body), jute.NewDecoder(r.Reply)
	var all []Event
	// By path: the type of the created node. ZooKeeper looks the type up by the path in the request, so a
	// sequential node that is named by its whole path has none.
	types := map[string]string{}
	for {
		h, result := in.MultiHeader(), out.MultiHeader()
		if h.Done || in.Err() != nil || out.Err() != nil {
			break
		}
		if result.Type == jute.OpError {
			e.Operation, e.Result = "multiOperation", failure
			l.Add(e)
			return
		}
		one := *e
		switch h.Type {
		case jute.OpCheck:
			in.PathVersion()
			continue
		case jute.OpSetData:
			one.one(&in, h.Type)
			out.Stat()
		case jute.OpDelete:
			one.one(&in, h.Type)
		case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
			one.one(&in, h.Type)
			if h.Type != jute.OpCreateTTL {
				types[one.Path] = one.Type
			}
			one.Path, _ = out.String()
			if h.Type != jute.OpCreate {
				out.Stat()
			}
		default: // a multi that reads, and changes nothing
			return
		}
		all = append(all, one)
	}
	for i := range all {
		all[i].Type = types[all[i].Path]
		if all[i].Operation != "create" {
			all[i].Type = ""
		}
		l.Add(&all[i])
	}
}
