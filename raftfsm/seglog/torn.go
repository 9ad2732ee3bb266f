package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// checkEnd decides whether the records may end where parsing failed. The argument `want` is the index of the
// record that should follow.
func (s *segment) checkEnd(b []byte, why error, want, next uint64) error {
	if next != 0 && want != next {
		return errors.Join(errDamaged, errors.New("the segment ends before the next begins"))
	}
	if errors.Is(why, errDamaged) {
		return why
	}
	// The rest of the same torn batch may follow, with any bytes that clients have put into their data. A
	// record of a later batch must not follow.
	for at := s.end + 8; at+recordSize <= len(b); at += 8 {
		if binary.BigEndian.Uint32(b[at:]) == 0 {
			continue
		}
		if r, err := parse(b[at:], at); err == nil && r.batch > want &&
			(s.secret == 0 || r.secret == s.secret) {
			return errors.Join(errDamaged, fmt.Errorf("later entry %d follows", r.index))
		}
	}
	return nil
}

// wipe() writes zeros over the bytes of a torn write after the last record, because appends expect zeros
// there. These bytes contain no acknowledged entry.
func (s *segment) wipe(f vfs.File) error {
	b := make([]byte, s.limit()-s.end)
	if _, err := f.ReadAt(b, int64(s.end)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return nil
	}
	clear(b)
	// Write from the end to the start. If a crash interrupts wipe, zeros then follow the torn bytes that are
	// left, as they follow every torn write. Zeros never stand before torn bytes.
	for len(b) > 0 {
		n := (len(b) - 1) / (1 << 20) * (1 << 20)
		if _, err := f.WriteAt(b[n:], int64(s.end+n)); err != nil {
			return err
		}
		if err := f.Datasync(); err != nil {
			return err
		}
		b = b[:n]
	}
	return nil
}
