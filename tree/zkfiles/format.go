package zkfiles

import (
	"errors"
	"fmt"
	"io"
)

const (
	snapshotMagic = "ZKSN"
	logMagic      = "ZKLG"
	fileVersion   = 2

	// maxField bounds the memory that one length in a file can make a reader allocate. ZooKeeper accepts
	// requests of a few megabytes at most, whatever its settings.
	maxField = 256 << 20
)

// ErrTorn marks a file that ends in the middle: its server died while it wrote the file.
var ErrTorn = errors.New("it ends in the middle")

// FormatError says where a file breaks its format.
type FormatError struct {
	Offset int64
	Err    error
}

func (e *FormatError) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

// Unwrap returns the error at that place.
func (e *FormatError) Unwrap() error { return e.Err }

// checkHeader reads the header of a snapshot or a log, 16 bytes.
func checkHeader(s *stream, magic string) (dbID int64, err error) {
	var got [4]byte
	s.full(got[:])
	version := s.int()
	dbID = s.long()
	switch {
	case s.err != nil:
		return 0, s.err
	case string(got[:]) != magic:
		what := map[string]string{snapshotMagic: "snapshot", logMagic: "transaction log"}[magic]
		return 0, &FormatError{0, fmt.Errorf("this is not a %s of a ZooKeeper: it begins with %q instead "+
			"of %q", what,
			got[:], magic)}
	case version != fileVersion:
		return 0, &FormatError{
			4, fmt.Errorf("format version %d is not supported, only version %d: start the ZooKeeper once "+
				"with "+
				"release 3.4 or newer, which writes version 2", version, fileVersion)}
	}
	return dbID, nil
}

// torn() turns an unexpected end of the file into ErrTorn.
func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTorn
	}
	return err
}
