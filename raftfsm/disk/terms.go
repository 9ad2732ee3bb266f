package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// terms keeps the server's term and its last vote as one value in bolt, with a checksum after them:
//
//	term u64 · term of the vote u64 · candidate · crc32c u32
//
// The candidate is its address, a zero byte and its id; zlockd 0.1 wrote only the address.
//
// raft stores a vote as two values: the term, then the candidate. If a server ends between the two writes, it
// finds the new term beside an older candidate when it starts again. raft would then believe that it has
// granted a vote to that candidate in the new term, and would grant the candidate's next request without
// comparing the logs. With a single value this cannot happen, and an election needs two syncs less. The
// checksum is there because bolt protects only its two meta pages, and a server with a damaged term or vote
// could vote twice.
type terms struct {
	below raft.StableStore

	// raft writes on one goroutine; other goroutines read. No goroutine holds the lock while bolt writes.
	mu     sync.Mutex
	stored termRecord
	voting uint64 // term of a vote whose candidate raft will store next
}

// termRecord is the value that terms keeps.
type termRecord struct {
	term, votedIn uint64
	votedFor      []byte
}

const (
	termsKey     = "terms"
	termsFixed   = 16 // bytes of the two terms
	termsTrailer = 4  // bytes of the checksum

	keyCurrentTerm = "CurrentTerm" // one of raft's own names, as are the next two
	keyVoteTerm    = "LastVoteTerm"
	keyVoteFor     = "LastVoteCand"
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func (r *termRecord) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, r.term)
	b = binary.BigEndian.AppendUint64(b, r.votedIn)
	b = append(b, r.votedFor...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

func decodeTerms(b []byte) (r termRecord, err error) {
	end := len(b) - termsTrailer
	if end < termsFixed {
		return r, errors.New("the record is cut short")
	}
	if crc32.Checksum(b[:end], crcTable) != binary.BigEndian.Uint32(b[end:]) {
		return r, errors.New("the record's checksum is wrong")
	}
	r.term, r.votedIn, r.votedFor = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), b[termsFixed:end]
	if r.votedIn > r.term {
		return r, fmt.Errorf("the vote has term %d, but the newest term is %d", r.votedIn, r.term)
	}
	return r, nil
}

// openTerms reads the record. If `begun` is true, the directory must have a record; otherwise openTerms
// writes the first record.
func openTerms(below raft.StableStore, file string, begun bool) (*terms, error) {
	t := &terms{below: below}
	b, err := below.Get([]byte(termsKey))
	switch {
	case err == nil && len(b) > 0: // raft's store in memory returns an empty value for a missing key
		if t.stored, err = decodeTerms(b); err != nil {
			return nil, damagedTerms(file, err.Error())
		}
		return t, nil
	case err != nil && !missing(err):
		return nil, fmt.Errorf("read terms and votes: %w", err)
	case begun:
		return nil, damagedTerms(file, "the record is missing")
	}
	return t, t.store(termRecord{})
}

func damagedTerms(file, what string) error {
	return fmt.Errorf("%s, which holds this server's term and vote, is damaged: %s; remove the data directory, "+
		"then remove this server from the cluster and add it again as a new one", file, what)
}

func (t *terms) store(r termRecord) error {
	if err := t.below.Set([]byte(termsKey), r.encode()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored = r
	return nil
}

func (t *terms) load() (r termRecord, voting uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stored, t.voting
}

// SetUint64 implements raft.StableStore. It keeps the term of a vote in memory until Set names the candidate.
func (t *terms) SetUint64(k []byte, v uint64) error {
	r, _ := t.load()
	switch string(k) {
	case keyCurrentTerm:
		r.term = v
		return t.store(r)
	case keyVoteTerm:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.voting = v
		return nil
	}
	return fmt.Errorf("raft stores %q, which is neither a term nor a vote", k)
}

// Set implements raft.StableStore.
func (t *terms) Set(k, v []byte) error {
	if string(k) != keyVoteFor {
		return fmt.Errorf("raft stores %q, which is not a candidate", k)
	}
	r, voting := t.load()
	r.votedIn, r.votedFor = voting, slices.Clone(v)
	return t.store(r)
}

// GetUint64 implements raft.StableStore.
func (t *terms) GetUint64(k []byte) (uint64, error) {
	r, _ := t.load()
	switch string(k) {
	case keyCurrentTerm:
		return r.term, nil
	case keyVoteTerm:
		return r.votedIn, nil
	}
	return 0, errors.New(keyNotFound)
}

// Get implements raft.StableStore.
func (t *terms) Get(k []byte) ([]byte, error) {
	if r, _ := t.load(); string(k) == keyVoteFor {
		return slices.Clone(r.votedFor), nil
	}
	return nil, errors.New(keyNotFound)
}

// boltName is the file with terms and votes, and also with the log if --log-store is bolt.
const boltName = "raft/stable.db"

func openBolt(file string, readOnly bool) (*boltdb.BoltStore, error) {
	// A write to bolt may need two syncs. That is no problem, because terms and votes are rarely written.
	o := &bbolt.Options{Timeout: time.Second, ReadOnly: readOnly}
	return boltdb.New(boltdb.Options{Path: file, BoltOptions: o, MsgpackUseNewTimeFormat: true})
}

// readBolt opens an existing bolt file for reading, and reads its terms and votes.
func readBolt(file string) (bolt *boltdb.BoltStore, t *terms, err error) {
	if err := checkMetas(file); err != nil {
		return nil, nil, err
	}
	// bolt trusts the offsets that it finds, and reads from mapped memory, so a damaged file can make it
	// panic or touch pages that do not exist.
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

// A bolt file has two meta pages, and bolt uses the newer page. If the checksum of that page is wrong, bolt
// uses the older page, and the last transaction is lost. That is right if a crash tore the page, but if the
// page is damaged on the disk, a vote is lost. The used part of a page lies in one sector, and a disk writes
// a sector whole or not at all. So the checksums of both pages are right unless the disk has damaged a page.
const (
	boltHeader = 16 // bytes of a page's header
	boltMeta   = 56 // bytes of the meta data before their checksum
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
			return 0, damagedTerms(file, "the checksum of a meta page is wrong")
		}
		return int64(binary.NativeEndian.Uint32(m[8:])), nil
	}
	pageSize, err := meta(0)
	if err == nil {
		_, err = meta(pageSize)
	}
	return err
}
