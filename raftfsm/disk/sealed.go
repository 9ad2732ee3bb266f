package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// sealedStable keeps terms and votes in bolt with a checksum behind each:
//
//	value · "\x00zs1" · crc32c of key and value u32
//
// bolt has checksums for its two meta pages alone, and a server that believed a
// damaged term or vote could vote twice. Releases before this one wrote the bare
// value, and read the front of a sealed one; a vote they find is then nobody's
// they know, so they give none in that term. The identity says that a directory
// is sealed: from then on every key is there, and what has no seal is damaged.
type sealedStable struct {
	raft.StableStore
	file   string
	sealed bool
}

var sealMagic = []byte("\x00zs1")

const sealSize = 8

// sealedKeys are raft's, and what they hold before raft writes them.
var sealedKeys = []struct {
	key  string
	none []byte
}{
	{"CurrentTerm", make([]byte, 8)},
	{"LastVoteTerm", make([]byte, 8)},
	{"LastVoteCand", nil},
}

func sealSum(k, v []byte) uint32 { return crc32.Update(crc32.Checksum(k, crcTable), crcTable, v) }

// Set implements raft.StableStore.
func (s *sealedStable) Set(k, v []byte) error {
	b := slices.Concat(v, sealMagic)
	return s.StableStore.Set(k, binary.BigEndian.AppendUint32(b, sealSum(k, v)))
}

// Get implements raft.StableStore.
func (s *sealedStable) Get(k []byte) ([]byte, error) {
	b, err := s.StableStore.Get(k)
	if err != nil {
		if s.sealed && err.Error() == keyNotFound {
			return nil, damagedStable(s.file, fmt.Sprintf("%s is missing", k))
		}
		return nil, err
	}
	if at := len(b) - sealSize; at >= 0 && bytes.Equal(b[at:at+len(sealMagic)], sealMagic) {
		if sealSum(k, b[:at]) != binary.BigEndian.Uint32(b[at+len(sealMagic):]) {
			return nil, damagedStable(s.file, fmt.Sprintf("%s does not fit its checksum", k))
		}
		return b[:at], nil
	}
	if s.sealed {
		return nil, damagedStable(s.file, fmt.Sprintf("%s has no checksum", k))
	}
	return b, nil
}

// SetUint64 implements raft.StableStore.
func (s *sealedStable) SetUint64(k []byte, v uint64) error {
	return s.Set(k, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 implements raft.StableStore.
func (s *sealedStable) GetUint64(k []byte) (uint64, error) {
	b, err := s.Get(k)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, damagedStable(s.file, fmt.Sprintf("%s is %d bytes long", k, len(b)))
	}
	return binary.BigEndian.Uint64(b), nil
}

// seal gives every key its checksum, as far as it has none yet.
func (s *sealedStable) seal() error {
	for _, k := range sealedKeys {
		v, err := s.Get([]byte(k.key))
		if err != nil && err.Error() == keyNotFound {
			v, err = k.none, nil
		}
		if err == nil {
			err = s.Set([]byte(k.key), v)
		}
		if err != nil {
			return err
		}
	}
	s.sealed = true
	return nil
}

// check reads every key.
func (s *sealedStable) check() error {
	for _, k := range sealedKeys {
		if _, err := s.Get([]byte(k.key)); err != nil {
			return err
		}
	}
	kind, err := s.StableStore.Get([]byte(logKindKey))
	if err == nil && string(kind) != "wal" && string(kind) != "bolt" {
		err = errors.New("the kind of the log is none")
	}
	if err != nil {
		return damagedStable(s.file, err.Error())
	}
	return nil
}

func damagedStable(file, what string) error {
	return fmt.Errorf("%s, which holds this server's term and vote, is damaged: %s; remove the data directory, then remove this server from the cluster and add it again as a new one", file, what)
}

// checkStable reads the file of a sealed directory, before anything is written
// to it.
func checkStable(file string) (err error) {
	if err := checkMetas(file); err != nil {
		return err
	}
	// bolt believes the offsets that it finds, and what it reads is mapped: it may
	// panic, or touch what is not there.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damagedStable(file, fmt.Sprint(p))
		}
	}()
	bolt, err := openBolt(file, true)
	if err != nil {
		if errors.Is(err, bolterrors.ErrTimeout) {
			return fmt.Errorf("open stable store: %w", err)
		}
		return damagedStable(file, err.Error())
	}
	return errors.Join((&sealedStable{bolt, file, true}).check(), bolt.Close())
}

func openBolt(file string, readOnly bool) (*boltdb.BoltStore, error) {
	// Terms and votes are rare writes, so they may cost two fsyncs each.
	return boltdb.New(boltdb.Options{Path: file, BoltOptions: &bbolt.Options{Timeout: time.Second, ReadOnly: readOnly}, MsgpackUseNewTimeFormat: true})
}

// Of a bolt file's two meta pages the newer counts. If its checksum is wrong
// bolt takes the older, and with it what was written last is gone: right where
// the write was torn, a vote forgotten where the disk has rotted. What counts of
// a page is in one sector, which is written whole or not at all, so both are
// always right.
const (
	boltHeader = 16 // of a page
	boltMeta   = 56 // of the meta data, in front of their checksum
)

func checkMetas(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("open stable store: %w", err)
	}
	defer f.Close()
	meta := func(at int64) (pageSize int64, err error) {
		var b [boltHeader + boltMeta + 8]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			if errors.Is(err, io.EOF) {
				return 0, damagedStable(file, "it is cut short")
			}
			return 0, fmt.Errorf("open stable store: %w", err)
		}
		m := b[boltHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:boltMeta])
		if sum.Sum64() != binary.NativeEndian.Uint64(m[boltMeta:]) {
			return 0, damagedStable(file, "a meta page does not fit its checksum")
		}
		return int64(binary.NativeEndian.Uint32(m[8:])), nil
	}
	pageSize, err := meta(0)
	if err == nil {
		_, err = meta(pageSize)
	}
	return err
}
