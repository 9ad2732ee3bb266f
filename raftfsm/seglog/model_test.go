package seglog

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim"
)

var (
	seedsFlag = flag.Int("seglog.seeds", 2000, "runs of the log against its model")
	firstFlag = flag.Uint64("seglog.seed", 1, "the first of them")
)

// TestLogAgainstASlice compares a log with a slice. It appends to the log, truncates both ends, opens the log
// again and crashes, many times. In a crash the disk loses any part of the bytes that were not synced. The
// long form:
//
//	go test ./raftfsm/seglog -run AgainstASlice -seglog.seeds 100000
func TestLogAgainstASlice(t *testing.T) {
	for seed := *firstFlag; seed < *firstFlag+uint64(*seedsFlag); seed++ {
		must.OK(t, runModel(seed, func(fs vfs.FS) vfs.FS { return fs }), "seed %d", seed)
	}
}

// logModel is a log, and the entries that it must have.
type logModel struct {
	rng  *rand.Rand
	disk *sim.Disk
	wrap func(vfs.FS) vfs.FS
	log  *Log

	first   uint64               // index of the first entry; the log may have earlier entries
	entries map[uint64]*raft.Log // by index, including entries that were cut off at the head
	last    uint64
	sure    uint64 // index of the last durable entry; later entries are queued and may be lost
	term    uint64
	size    int // most data have this size, so that new records begin where old ones did

	crashIn int  // disk operations until the next crash; 0: no crash comes
	kill    bool // the crash ends only the process, so the disk keeps its cache
	dead    bool // the crash has come
	failIn  int  // disk operations until one fails
}

var errInjected = errors.New("injected")

// runModel runs one seed.
func runModel(seed uint64, wrap func(vfs.FS) vfs.FS) error {
	rng := rand.New(rand.NewPCG(seed, 11))
	m := &logModel{rng: rng, disk: sim.NewDisk(rng), wrap: wrap, first: 1, entries: map[uint64]*raft.Log{},
		term: 1, size: 8 + rng.IntN(120)}
	m.disk.OnOp(m.onOp)
	if err := m.open(); err != nil {
		return err
	}
	for step := range 40 {
		what, err := m.step()
		if err == nil && m.dead { // the step succeeded, but the disk has crashed
			err = m.reopen(errInjected, min(m.sure, m.last), m.last)
		}
		if err == nil {
			err = m.compare()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", step, what, err)
		}
	}
	return nil
}

// onOp crashes the disk, or refuses an operation.
func (m *logModel) onOp(op sim.DiskOp) error {
	if !op.Changes() {
		return nil
	}
	if m.crashIn > 0 {
		if m.crashIn--; m.crashIn == 0 {
			m.dead = true
			if m.kill {
				m.disk.Mount()
			} else {
				m.disk.PowerLoss()
			}
		}
	}
	if m.failIn > 0 {
		if m.failIn--; m.failIn == 0 {
			if op.Kind == "write" && m.rng.IntN(2) == 0 {
				return &sim.ShortWrite{N: m.rng.IntN(op.Len + 1), Err: syscall.ENOSPC}
			}
			return errInjected
		}
	}
	return nil
}

// step() does one random thing to the log.
func (m *logModel) step() (what string, err error) {
	if m.rng.IntN(6) == 0 {
		m.crashIn, m.kill = 1+m.rng.IntN(14), m.rng.IntN(2) == 0
	} else if m.rng.IntN(12) == 0 {
		m.failIn = 1 + m.rng.IntN(10)
	}
	switch k := m.rng.IntN(24); {
	case k < 7:
		return "append", m.append(m.last+1, 1+m.rng.IntN(4))
	case k < 11:
		return "queue", m.queue()
	case k < 12:
		return "write the queue", m.outcome(m.pump(), min(m.sure, m.last), m.last)
	case k < 19 && m.last >= m.first:
		from := m.first + m.rng.Uint64N(m.last-m.first+1)
		if m.rng.IntN(2) == 0 { // half of the cuts are near the end
			from = max(m.first, m.last-min(m.last, m.rng.Uint64N(3)))
		}
		return fmt.Sprintf("cut %d..%d", from, m.last), m.cutTail(from)
	case k < 21 && m.last >= m.first:
		return "cut the head", m.cutHead(m.first + m.rng.Uint64N(m.last-m.first+1))
	case k < 22:
		return "append behind a gap", m.gap()
	case k < 23:
		return "close", m.reopen(m.log.Close(), min(m.sure, m.last), m.last)
	}
	if m.rng.IntN(2) == 0 {
		m.disk.PowerLoss()
	}
	return "crash", m.reopen(errInjected, min(m.sure, m.last), m.last)
}

func (m *logModel) batch(from uint64, n int) []*raft.Log {
	if m.rng.IntN(4) == 0 {
		m.term++
	}
	var list []*raft.Log
	for i := range n {
		size := m.size
		if m.rng.IntN(12) == 0 {
			size = m.rng.IntN(3000)
		}
		list = append(list, &raft.Log{Index: from + uint64(i), Term: m.term, Data: data(m.rng, size)})
	}
	return list
}

func (m *logModel) put(list []*raft.Log) {
	for _, e := range list {
		m.entries[e.Index] = e
		m.last = e.Index
	}
}

func (m *logModel) append(from uint64, n int) error {
	b, sure := m.batch(from, n), m.sure
	m.put(b)
	err := m.log.StoreLogs(b)
	if err == nil {
		sure = m.last
	}
	return m.outcome(err, sure, m.last)
}

// queue() appends without waiting.
func (m *logModel) queue() error {
	b, sure := m.batch(m.last+1, 1+m.rng.IntN(3)), m.sure
	if err := m.log.Append(b, m.rng.IntN(2) == 0); err != nil {
		return err
	}
	m.put(b)
	m.sure = min(sure, b[0].Index-1)
	if m.log.Durable() != m.sure && m.sure != 0 {
		return fmt.Errorf("durable is %d, want %d", m.log.Durable(), m.sure)
	}
	return nil
}

// pump() writes the queue as its goroutine would.
func (m *logModel) pump() error {
	m.log.writer <- struct{}{}
	err := m.log.drain()
	<-m.log.writer
	return err
}

func (m *logModel) cutTail(from uint64) error {
	sure := min(m.sure, m.last)
	first, _ := m.log.FirstIndex()
	err := m.log.DeleteRange(from, m.last)
	// The truncation has happened wholly or not at all, but entries that were still queued may be lost.
	if err != nil {
		was := m.last
		if err := m.outcome(err, min(sure, from-1), was); err != nil {
			return err
		}
		if m.last >= from && m.last < sure {
			return fmt.Errorf("a truncation at %d that was cut short has left entries up to %d of %d", from, m.last,
				was)
		}
		return nil
	}
	m.forget(from)
	if m.last = from - 1; m.last < first {
		clear(m.entries) // the log is empty now, so none of the old entries may come back
	}
	m.term++
	return m.outcome(nil, m.last, m.last)
}

func (m *logModel) forget(from uint64) {
	for i := from; i <= m.last; i++ {
		delete(m.entries, i)
	}
}

func (m *logModel) cutHead(to uint64) error {
	first, _ := m.log.FirstIndex()
	sure := min(m.sure, m.last)
	err := m.log.DeleteRange(first, to)
	if to == m.last {
		if err != nil {
			if err := m.outcome(err, 0, m.last); err != nil {
				return err
			}
			if m.last >= m.first && m.last < sure {
				return fmt.Errorf("emptying the log was cut short and has left entries up to %d", m.last)
			}
			return nil
		}
		clear(m.entries)
		m.first, m.sure = m.last+1, m.last
		return nil
	}
	if err == nil {
		m.first = max(m.first, to+1)
		return m.outcome(nil, m.last, m.last)
	}
	if err := m.outcome(err, sure, m.last); err != nil {
		return err
	}
	if first, _ := m.log.FirstIndex(); first <= to+1 { // a part of the head was deleted
		m.first = max(m.first, first)
	}
	return nil
}

// gap() appends an entry after a gap, as after a snapshot.
func (m *logModel) gap() error {
	from, sure := m.last+2+m.rng.Uint64N(5), min(m.sure, m.last)
	b := m.batch(from, 2)
	err := m.log.StoreLogs(b)
	if err == nil {
		clear(m.entries)
		m.put(b)
		m.first, m.sure = from, m.last
		return nil
	}
	// A StoreLogs after a gap failed. Now the log has the entries from before the call, no entry, or the
	// first of the new entries.
	was := m.last
	if err := m.restart(); err != nil {
		return err
	}
	switch last, _ := m.log.LastIndex(); {
	case last >= from:
		clear(m.entries)
		m.put(b)
		m.forget(last + 1)
		m.first, m.last, m.sure = from, last, last
	case last == 0 && (sure < m.first || m.first > 0):
		clear(m.entries)
		m.first, m.last, m.sure = from, from-1, from-1
	case last < sure || last > was:
		return fmt.Errorf("the log reaches to %d, want %d to %d", last, sure, was)
	default:
		m.forget(last + 1)
		m.last, m.sure = last, last
	}
	return m.again()
}

// outcome() notes a step after which the log ends at the entry `last`. If the step failed, outcome() opens
// the log again, and the log then must end between the entries `sure` and `last`.
func (m *logModel) outcome(err error, sure, last uint64) error {
	if err == nil {
		m.sure = last
		return nil
	}
	return m.reopen(err, sure, last)
}

// reopen() opens the log after a close or a crash, and moves the end of the model to the end of the log.
func (m *logModel) reopen(ended error, sure, last uint64) error {
	if ended != nil && !m.excused(ended) {
		return ended
	}
	if ended == nil {
		sure = last
	}
	if err := m.restart(); err != nil {
		return err
	}
	got, _ := m.log.LastIndex()
	if got == 0 && sure < m.first { // after a crash the log may be empty
		got = max(sure, m.first-1)
	}
	if got < sure || got > last {
		return fmt.Errorf("after %v the log reaches to %d, want %d to %d", ended, got, sure, last)
	}
	m.forget(got + 1)
	m.last, m.sure = got, got
	return m.again()
}

// excused() reports whether the test itself caused an error.
func (m *logModel) excused(err error) bool {
	return errors.Is(err, errInjected) || errors.Is(err, sim.ErrOff) || errors.Is(err, syscall.ENOSPC)
}

// restart() starts the disk again and again until the log opens.
func (m *logModel) restart() error {
	for try := range 5 {
		if try == 4 || m.rng.IntN(3) > 0 {
			m.crashIn, m.failIn = 0, 0
		} else {
			m.crashIn, m.kill = 1+m.rng.IntN(6), m.rng.IntN(2) == 0
		}
		err := m.open()
		if err == nil || !m.excused(err) {
			return err
		}
	}
	return nil
}

func (m *logModel) open() (err error) {
	m.dead = false
	fs := m.wrap(m.disk.Mount())
	m.log, err = Open("log", Options{FS: fs, FirstSize: 1 << 10, FullSize: 4 << 10, InTurn: true})
	if err == nil {
		m.log.started.Do(func() {}) // no goroutine writes the queue, only pump() does
	}
	if l, ok := fs.(*liar); ok {
		l.opened = true
	}
	return err
}

// again() simulates a loss of power right after the log was opened. The entries that Open found must be
// durable.
func (m *logModel) again() error {
	m.crashIn, m.failIn = 0, 0
	if m.rng.IntN(2) == 0 {
		return nil
	}
	was, _ := m.log.LastIndex()
	m.disk.PowerLoss()
	if err := m.open(); err != nil {
		return err
	}
	if last, _ := m.log.LastIndex(); last != was {
		return fmt.Errorf("Open found entries up to %d; after a loss of power there are %d", was, last)
	}
	return nil
}

// compare() looks at every entry.
func (m *logModel) compare() error {
	first, _ := m.log.FirstIndex()
	last, _ := m.log.LastIndex()
	if last == 0 && m.last < m.first {
		return nil
	}
	if last != m.last || first > m.first {
		return fmt.Errorf("the log is %d..%d, want %d..%d", first, last, m.first, m.last)
	}
	var got raft.Log
	for i := first; i <= last; i++ {
		want := m.entries[i]
		if err := m.log.GetLog(i, &got); err != nil {
			return err
		}
		if want == nil || got.Term != want.Term || !bytes.Equal(got.Data, want.Data) {
			return fmt.Errorf("entry %d of %d..%d is not the one that was stored there last", i, m.first, m.last)
		}
	}
	if err := m.log.GetLog(last+1, &got); err != raft.ErrLogNotFound {
		return fmt.Errorf("behind the last entry: %v", err)
	}
	if from := m.log.Within(1 << 40); from > first && len(m.log.queue) == 0 {
		return fmt.Errorf("all entries from %d on: %d", first, from)
	}
	return m.descriptors()
}

func (m *logModel) descriptors() error {
	n := 0
	for _, s := range m.log.segments {
		if s.file != nil {
			n++
		}
	}
	if n > readers+1 {
		return fmt.Errorf("%d segments are open", n)
	}
	if list, err := m.log.fs.List("log"); err == nil && len(list) > len(m.log.segments)+1 {
		return fmt.Errorf("%d segments in files %s", len(m.log.segments), strings.Join(list, " "))
	}
	return nil
}
