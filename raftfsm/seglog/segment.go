package seglog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// segment is one file. Its records have the indexes base, base+1, …
type segment struct {
	name    string // path of the file
	seq     uint64
	base    uint64
	size    int      // size of the file
	secret  uint64   // the secret in the segment's records; 0: no secret
	end     int      // offset of the next record
	offsets []uint32 // offsets of the records

	// load() sets the terms of the first and the last record, and whether a torn record follows.
	firstTerm, lastTerm uint64
	torn                bool

	file  vfs.File // the open file, or nil; guarded by files.mu
	users int      // how many callers use the open file; guarded by files.mu
	gone  bool     // whether the segment has left the log; guarded by files.mu
}

// limit returns the offset at which the records must end.
func (s *segment) limit() int {
	if s.secret == 0 {
		return s.size
	}
	return s.size - endSize
}

func segmentName(seq uint64) string { return fmt.Sprintf("%012d.log", seq) }

func (s *segment) last() uint64 { return s.base + uint64(len(s.offsets)) - 1 }

// endOf returns the offset at which the record with this index, and its padding, ends.
func (s *segment) endOf(index uint64) int {
	if k := index - s.base + 1; k < uint64(len(s.offsets)) {
		return int(s.offsets[k])
	}
	return s.end
}

// prepareStep is how many zeros one write contains. The file system stores a file in pieces as large as these
// writes. A later write into a piece visits every block of the piece, and so does its sync. If one write had
// a megabyte of zeros, a short append and its sync would take about 8 µs longer.
const prepareStep = 16 << 10

// prepare() makes a file of zeros, which still needs its header and its name.
func prepare(fs vfs.FS, name string, size int) (vfs.File, error) {
	f, err := fs.Create(name)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(size, prepareStep))
	for at := 0; at < size && err == nil; at += len(zeros) {
		_, err = f.WriteAt(zeros[:min(len(zeros), size-at)], int64(at))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, discard(fs, f))
	}
	return f, nil
}

// discard() removes a prepared file that is not needed.
func discard(fs vfs.FS, f vfs.File) error { return errors.Join(f.Close(), fs.Remove(f.Name())) }

// begin() turns a prepared file into the segment that begins at the index `base`, durably. The caller counts
// as a user of the segment.
func begin(fs vfs.FS, dir string, f vfs.File, size int, seq, base, secret uint64) (*segment, error) {
	h := append([]byte(nil), magic...)
	h = binary.BigEndian.AppendUint64(h, base)
	h = binary.BigEndian.AppendUint32(h, checksum(h))
	h = binary.BigEndian.AppendUint32(h, sizeNoted(size))
	if _, err := f.WriteAt(h, 0); err != nil {
		return nil, err
	}
	end := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, secret), ^secret)
	if _, err := f.WriteAt(end, int64(size-endSize)); err != nil {
		return nil, err
	}
	if err := f.Datasync(); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, segmentName(seq))
	if err := fs.Rename(f.Name(), name); err != nil {
		return nil, err
	}
	if err := fs.SyncDir(dir); err != nil {
		return nil, err
	}
	return &segment{name: name, file: f, users: 1, seq: seq, base: base, size: size, secret: secret,
		end: headerSize}, nil
}

// readSegments reads the segments of a log, newest first, because a segment supersedes entries of earlier
// segments. It calls ready() with each file before it reads the file. It returns the segments of
// the log, oldest first, and the superseded segments whose removal was interrupted.
func readSegments(fs vfs.FS, dir string, names []string,
	ready func(f vfs.File, newest bool) error) (segments, old []*segment, err error) {
	var next, nextTerm uint64
	for _, name := range slices.Backward(names) {
		path := filepath.Join(dir, name)
		seq, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is not a segment of the log", path)
		}
		err = withFile(fs, path, func(f vfs.File) error {
			base, err := baseOf(f)
			if err != nil {
				return err
			}
			if next != 0 && base >= next {
				old = append(old, &segment{name: path, seq: seq})
				return nil
			}
			if err := ready(f, next == 0); err != nil {
				return err
			}
			found, err := load(f, seq, next)
			if err != nil {
				return err
			}
			if nextTerm != 0 && found.lastTerm > nextTerm {
				return fmt.Errorf("the next segment: %w", errTerm)
			}
			if found.firstTerm != 0 {
				nextTerm = found.firstTerm
			}
			next = base
			segments = slices.Insert(segments, 0, found)
			return nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return segments, old, nil
}

// load() reads a segment back. The argument `next` is the base of the following segment, or 0 for the last
// segment. load() ignores records from the index `next` on, because they are superseded.
func load(f vfs.File, seq, next uint64) (*segment, error) {
	b, err := vfs.ReadAll(f)
	if err != nil {
		return nil, err
	}
	base, err := readWhole(b)
	if err != nil {
		return nil, err
	}
	s := &segment{name: f.Name(), seq: seq, base: base, size: len(b), secret: readSecret(b), end: headerSize}
	for next == 0 || base+uint64(len(s.offsets)) < next {
		want := base + uint64(len(s.offsets))
		r, err := parse(b[s.end:], s.end)
		if err == nil && r.index != want {
			err = errDamaged
		}
		if err == nil && r.term < s.lastTerm {
			err = errTerm
		}
		if err != nil {
			if err := s.checkEnd(b, err, want, next); err != nil {
				return nil, fmt.Errorf("log entry %d at offset %d: %w", want, s.end, err)
			}
			s.torn = errors.Is(err, errTorn)
			break
		}
		if len(s.offsets) == 0 {
			s.firstTerm = r.term
			if r.secret != s.secret {
				s.secret = 0 // the segment has no secret: the bytes at its end are a client's data
			}
		}
		s.lastTerm = r.term
		s.offsets = append(s.offsets, uint32(s.end))
		s.end += aligned(r.size)
	}
	return s, nil
}

// readSecret returns the secret of a segment. It returns 0 if the segment has no secret.
func readSecret(b []byte) uint64 {
	if len(b) < headerSize+endSize {
		return 0
	}
	end := b[len(b)-endSize:]
	secret := binary.BigEndian.Uint64(end)
	if binary.BigEndian.Uint64(end[8:]) != ^secret {
		return 0
	}
	return secret
}

func readHeader(b []byte) (base uint64, err error) {
	if len(b) < headerSize || !bytes.Equal(b[:8], magic) ||
		checksum(b[:16]) != binary.BigEndian.Uint32(b[16:]) {
		return 0, fmt.Errorf("segment header: %w", errDamaged)
	}
	return binary.BigEndian.Uint64(b[8:]), nil
}

// readWhole reads the header of a segment. It refuses a segment that has lost its end, because the end may
// have held entries and nothing else would show the loss.
func readWhole(b []byte) (base uint64, err error) {
	base, err = readHeader(b)
	if err != nil {
		return 0, err
	}
	if was := binary.BigEndian.Uint32(b[20:]); was != sizeNoted(len(b)) {
		return 0, fmt.Errorf("the segment has %d bytes, but was begun with %d: %w", len(b), was, errDamaged)
	}
	return base, nil
}

// sizeNoted returns the size in the form that the header has; 0: the size does not fit into the header.
func sizeNoted(size int) uint32 {
	if uint64(size) > math.MaxUint32 {
		return 0
	}
	return uint32(size)
}

// baseOf returns the index at which a segment begins.
func baseOf(f vfs.File) (uint64, error) {
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return readHeader(b)
}

// readers is how many segments stay open for reads. A log may have hundreds of segments.
const readers = 4

// files opens segments to read them, and bounds how many are open.
type files struct {
	fs   vfs.FS
	mu   sync.Mutex
	idle []*segment // open segments that are not in use; the first has been unused for the longest time
}

// errGone says that the log has dropped a segment that a reader was about to read.
var errGone = errors.New("the segment is no longer part of the log")

// use() runs f with the segment's file. No lock is held while the file is opened and f runs: so a disk that
// hangs delays only this reader.
func (p *files) use(s *segment, f func(vfs.File) error) error {
	p.mu.Lock()
	if s.users++; s.users == 1 {
		p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	}
	file := s.file
	p.mu.Unlock()
	defer p.release(s)
	if file == nil {
		mine, err := p.fs.Open(s.name)
		p.mu.Lock()
		if err == nil && s.file == nil && !s.gone {
			s.file, mine = mine, nil
		}
		file = s.file
		p.mu.Unlock()
		if mine != nil {
			mine.Close() // this file was opened only for this read
		}
		if file == nil {
			return cmp.Or(err, errGone)
		}
	}
	return f(file)
}

// release() ends one use of a segment. The segment to which the log writes is always in use.
func (p *files) release(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users > 0 || s.file == nil {
		return
	}
	p.idle = append(p.idle, s)
	if len(p.idle) > readers {
		old := p.idle[0]
		p.idle = p.idle[1:]
		old.file.Close() // this file was opened only for reads
		old.file = nil
	}
}

// close() closes the file of a segment that leaves the log. A read that is under way fails.
func (p *files) close(s *segment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.gone = true
	p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// dropped() reports whether a segment has left the log.
func (p *files) dropped(s *segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.gone
}

// withFile opens a file, runs f with it, and closes it.
func withFile(fs vfs.FS, name string, f func(vfs.File) error) error {
	file, err := fs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
