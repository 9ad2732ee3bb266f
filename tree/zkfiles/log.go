package zkfiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"

	"github.com/zlockd/zlockd/jute"
)

const (
	endOfRecord = 'B'
	entryHead   = 12 // checksum and length
	maxRecord   = 256 << 20
)

// LogReader reads a transaction log entry by entry.
type LogReader struct {
	DBID int64

	s     *stream
	at    int64 // where the last entry begins
	ended bool
}

// NewLogReader reads the header. It returns io.EOF for a file that was created and is still empty.
func NewLogReader(r io.Reader) (*LogReader, error) {
	s := newStream(r)
	if s.atEnd() && s.err == nil {
		return nil, io.EOF
	}
	dbID, err := checkHeader(s, logMagic)
	if err != nil {
		return nil, err
	}
	return &LogReader{DBID: dbID, s: s}, nil
}

// Offset returns where the last returned entry begins in the file.
func (r *LogReader) Offset() int64 { return r.at }

// Next returns the next transaction, or io.EOF after the last. It returns ErrTorn for an unfinished entry at
// the end of the log: no server has acknowledged that entry.
func (r *LogReader) Next() (*Txn, error) {
	if r.ended {
		return nil, io.EOF
	}
	t, err := r.next()
	r.ended = err != nil
	if err != nil && !errors.Is(err, io.EOF) {
		var fe *FormatError
		if errors.As(err, &fe) {
			err = fe.Err
		}
		return nil, &FormatError{r.at, err}
	}
	return t, err
}

func (r *LogReader) next() (*Txn, error) {
	r.at = r.s.off
	if head, err := r.s.r.Peek(entryHead); err != nil {
		switch {
		case err != io.EOF:
			return nil, torn(err)
		case len(bytes.Trim(head, "\x00")) > 0:
			return nil, ErrTorn
		}
		return nil, io.EOF // ZooKeeper allocates zeros for later entries
	}
	sum := r.s.long()
	size := r.s.int()
	switch {
	case size == 0:
		return nil, r.restOr(sum == 0)
	case size < 0 || size > maxRecord:
		return nil, errLength
	}
	b := r.s.some(int(size))
	var end [1]byte
	r.s.full(end[:])
	if r.s.err != nil && !errors.Is(r.s.err, ErrTorn) {
		return nil, r.s.err
	}
	if r.s.err != nil || end[0] != endOfRecord || int64(adler32.Checksum(b)) != sum {
		if (r.s.err != nil || end[0] == 0 && r.onlyZeros()) && !holdsEntries(b, sum) {
			return nil, ErrTorn
		}
		return nil, errors.New("the checksum is wrong: a byte of this entry has changed")
	}
	t, err := decodeTxn(b)
	if err != nil {
		return nil, fmt.Errorf("the entry is damaged: %w", err)
	}
	return t, nil
}

// holdsEntries tells a damaged length from an unfinished entry. According to the length in the file, b should
// be one record with the given checksum. The length is damaged if b holds the whole record, or whole entries
// after the record.
func holdsEntries(b []byte, sum int64) bool {
	b = bytes.TrimRight(b, "\x00")
	if last := len(b) - 1; last >= 0 && b[last] == endOfRecord && int64(adler32.Checksum(b[:last])) == sum {
		return true
	}
	for at := 0; at+entryHead < len(b); at++ {
		size := int64(int32(binary.BigEndian.Uint32(b[at+8:])))
		end := int64(at) + entryHead + size
		if b[at] == 0 && size > 0 && end < int64(len(b)) && b[end] == endOfRecord &&
			uint64(adler32.Checksum(b[at+entryHead:end])) == binary.BigEndian.Uint64(b[at:]) {
			return true
		}
	}
	return false
}

// restOr returns the error for an entry without a length. Only zeros may follow the entry. If its checksum is
// 0, too (`zeros`), the log ends here; otherwise the entry is torn.
func (r *LogReader) restOr(zeros bool) error {
	switch {
	case !r.onlyZeros():
		return errors.New("an entry has no length, but more bytes follow it")
	case !zeros:
		return ErrTorn
	}
	return io.EOF
}

// onlyZeros reports whether all bytes up to the end of the file are zeros.
func (r *LogReader) onlyZeros() bool {
	var b [4096]byte
	for {
		n, err := r.s.r.Read(b[:])
		for _, c := range b[:n] {
			if c != 0 {
				return false
			}
		}
		if err != nil {
			return err == io.EOF
		}
	}
}

// AppendLogHeader appends the header of a log.
func AppendLogHeader(b []byte, dbID int64) []byte {
	b = append(b, logMagic...)
	return jute.AppendLong(jute.AppendInt(b, fileVersion), dbID)
}

// AppendLogEntry appends a transaction.
func AppendLogEntry(b []byte, t *Txn) []byte {
	record := t.encode()
	b = jute.AppendLong(b, int64(adler32.Checksum(record)))
	b = jute.AppendBuffer(b, record)
	return append(b, endOfRecord)
}
