package sim

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Keys stands in for a key-value database such as raft's stable store. Once Set returns, the whole value is
// on the disk. Before that, no part of it is. zlockd uses bolt, which maps its file into memory and cannot be
// simulated.
type Keys struct{ m *Mount }

// Keys returns the key store of the disk, for one life of its server, from the server's start to its end.
func (m *Mount) Keys() Keys { return Keys{m} }

var errNoKey = errors.New("not found") // raft recognises the error by its text

// Set implements raft.StableStore.
func (k Keys) Set(key, value []byte) error {
	return k.m.do(DiskOp{Kind: "set", Name: string(key), Len: len(value)}, func() error {
		k.m.v.keys[string(key)] = slices.Clone(value)
		return nil
	})
}

// Get implements raft.StableStore.
func (k Keys) Get(key []byte) ([]byte, error) {
	k.m.d.mu.Lock()
	defer k.m.d.mu.Unlock()
	value, ok := k.m.v.keys[string(key)]
	if !ok {
		return nil, errNoKey
	}
	return slices.Clone(value), nil
}

// SetUint64 implements raft.StableStore.
func (k Keys) SetUint64(key []byte, value uint64) error {
	return k.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (k Keys) GetUint64(key []byte) (uint64, error) {
	b, err := k.Get(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}
