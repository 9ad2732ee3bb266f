package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// segment is one file. Its records are base, base+1, …
type segment struct {
	f       *os.File
	seq     uint64
	base    uint64
	size    int      // of the file
	end     int      // where the next record goes
	offsets []uint32 // of its records
}

func segmentName(seq uint64) string { return fmt.Sprintf("%012d.log", seq) }

func (s *segment) last() uint64 { return s.base + uint64(len(s.offsets)) - 1 }

// prepare makes a file of zeros that only needs its header and its name.
func prepare(dir string, size int) (*os.File, error) {
	f, err := os.CreateTemp(dir, "next-*.tmp")
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(size, 1<<20))
	for at := 0; at < size && err == nil; at += len(zeros) {
		_, err = f.WriteAt(zeros[:min(len(zeros), size-at)], int64(at))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, discard(f))
	}
	return f, nil
}

// discard removes a prepared file that is not needed.
func discard(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// begin turns a prepared file into the segment that begins at base.
func begin(dir string, f *os.File, size int, seq, base uint64) (*segment, error) {
	h := append([]byte(nil), magic...)
	h = binary.BigEndian.AppendUint64(h, base)
	h = binary.BigEndian.AppendUint32(h, crc32.Checksum(h, crcTable))
	if _, err := f.WriteAt(h, 0); err != nil {
		return nil, err
	}
	if err := datasync(f); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, segmentName(seq))); err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	return &segment{f: f, seq: seq, base: base, size: size, end: headerSize}, nil
}

// load reads a segment back. next is the base of the segment behind it, 0 for
// the last: records from next on are superseded and not looked at.
func load(path string, seq, next uint64) (*segment, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	base, err := readHeader(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &segment{seq: seq, base: base, size: len(b), end: headerSize}
	for next == 0 || base+uint64(len(s.offsets)) < next {
		want := base + uint64(len(s.offsets))
		r, err := parse(b[s.end:], s.end)
		if err == nil && r.index != want {
			err = errDamaged
		}
		if err != nil {
			if err := s.checkEnd(b, err, want, next); err != nil {
				return nil, fmt.Errorf("%s: log entry %d at offset %d: %w", path, want, s.end, err)
			}
			break
		}
		s.offsets = append(s.offsets, uint32(s.end))
		s.end += aligned(r.size)
	}
	// Written with the sync that follows every append, so opening for writing
	// only matters for the last segment.
	s.f, err = os.OpenFile(path, os.O_RDWR, 0o600)
	return s, err
}

func readHeader(b []byte) (base uint64, err error) {
	if len(b) < headerSize || !bytes.Equal(b[:8], magic) ||
		crc32.Checksum(b[:16], crcTable) != binary.BigEndian.Uint32(b[16:]) {
		return 0, fmt.Errorf("segment header: %w", errDamaged)
	}
	return binary.BigEndian.Uint64(b[8:]), nil
}

// checkEnd decides whether the records may end where parsing failed. want is
// the index that was expected there.
func (s *segment) checkEnd(b []byte, why error, want, next uint64) error {
	if next != 0 && want != next {
		// A later segment begins elsewhere. If it begins further on, the log
		// was reset and nothing here is needed; load is not asked then.
		return errors.Join(errDamaged, errors.New("the segment ends before the next begins"))
	}
	if errors.Is(why, errDamaged) {
		return why
	}
	// What follows may be the rest of the same torn batch, but nothing of a
	// later one.
	for at := s.end + 8; at+recordSize <= len(b); at += 8 {
		if binary.BigEndian.Uint32(b[at:]) == 0 {
			continue
		}
		if r, err := parse(b[at:], at); err == nil && r.batch > want {
			return errors.Join(errDamaged, fmt.Errorf("later entry %d follows", r.index))
		}
	}
	return nil
}

// wipe zeroes what a torn write has left behind the last record, so that the
// space is as appends expect it. Nothing acknowledged is there.
func (s *segment) wipe() error {
	b := make([]byte, s.size-s.end)
	if _, err := s.f.ReadAt(b, int64(s.end)); err != nil {
		return err
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return nil
	}
	clear(b)
	// From the end to the start: a crash in between leaves a hole behind
	// records, as before, never one in front of them.
	for len(b) > 0 {
		n := (len(b)-1)/(1<<20)*(1<<20) + 0
		if _, err := s.f.WriteAt(b[n:], int64(s.end+n)); err != nil {
			return err
		}
		if err := datasync(s.f); err != nil {
			return err
		}
		b = b[:n]
	}
	return nil
}

func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
