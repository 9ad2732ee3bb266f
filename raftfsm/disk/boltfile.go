package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"time"

	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// boltName is the file with terms and votes, and with the log where --log-store is bolt.
const boltName = "raft/stable.db"

func openBolt(file string, readOnly bool) (*boltdb.BoltStore, error) {
	// Terms and votes are rare writes, so they may cost two syncs each.
	o := &bbolt.Options{Timeout: time.Second, ReadOnly: readOnly}
	return boltdb.New(boltdb.Options{Path: file, BoltOptions: o, MsgpackUseNewTimeFormat: true})
}

// readBolt opens the file of a directory that is begun for reading, and reads the terms and votes in it.
func readBolt(file string) (bolt *boltdb.BoltStore, t *terms, err error) {
	if err := checkMetas(file); err != nil {
		return nil, nil, err
	}
	// bolt believes the offsets that it finds, and reads from mapped memory: a damaged file can make it panic or
	// touch pages that do not exist.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damagedTerms(file, fmt.Sprint(p))
		}
	}()
	bolt, err = openBolt(file, true)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, nil, fmt.Errorf("open stable store: %w", err)
	case err != nil:
		return nil, nil, damagedTerms(file, err.Error())
	}
	if t, err = openTerms(bolt, file, true); err != nil {
		return nil, nil, errors.Join(err, bolt.Close())
	}
	return bolt, t, nil
}

// A bolt file has two meta pages; the newer counts. If its checksum is wrong bolt takes the older,
// and the last transaction is gone: rightly where a crash tore the page, but where the disk has
// rotted, a vote is lost. The part of a page that counts lies in one sector, which a disk writes
// whole or not at all, so both are always right.
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
				return 0, damagedTerms(file, "it is cut short")
			}
			return 0, fmt.Errorf("open stable store: %w", err)
		}
		m := b[boltHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:boltMeta])
		if sum.Sum64() != binary.NativeEndian.Uint64(m[boltMeta:]) {
			return 0, damagedTerms(file, "a meta page does not fit its checksum")
		}
		return int64(binary.NativeEndian.Uint32(m[8:])), nil
	}
	pageSize, err := meta(0)
	if err == nil {
		_, err = meta(pageSize)
	}
	return err
}
