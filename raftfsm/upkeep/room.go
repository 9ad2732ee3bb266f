package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Full returns the reason to refuse requests that need more room. It returns "" if there is room.
func (u *Upkeep) Full() string {
	var nodes int
	var bytes int64
	u.o.View(func(s *state.State) { nodes, bytes = s.Tree().Count(), s.Tree().Bytes()+s.Tree().ACLBytes() })
	switch {
	case u.o.MaxNodes > 0 && nodes >= u.o.MaxNodes:
		return fmt.Sprintf("there are %d nodes, and no more than %d are allowed", nodes, u.o.MaxNodes)
	case u.o.MaxBytes > 0 && bytes >= u.o.MaxBytes:
		return fmt.Sprintf("the data and ACLs are %d bytes, and no more than %d are allowed", bytes,
			u.o.MaxBytes)
	}
	return u.DiskLow()
}

const roomLook = 250 * time.Millisecond

// DiskLow returns why this server's disk has too little free space, as WatchDisk found it. It returns "" if
// there is enough.
func (u *Upkeep) DiskLow() string { return *u.low.Load() }

// NoteDisk records why the disk has too little free space; "" means that there is enough.
func (u *Upkeep) NoteDisk(why string) { u.low.Store(&why) }

// WatchDisk measures the free space of this server's disk. It runs in a goroutine of its own, because a disk
// that hangs must not delay the goroutines that ask for the result.
func (u *Upkeep) WatchDisk(ctx context.Context) {
	for more := true; more; more = signal.Pause(ctx, u.raft.Beat(roomLook)) {
		why := u.lowWith(0)
		u.NoteDisk(why)
	}
}

// lowWith returns why this server's disk would have too little free space if it had `less` bytes less. It
// returns "" if there would be enough.
func (u *Upkeep) lowWith(less int64) string {
	free, err := u.o.FreeBytes(u.o.Dir)
	if err != nil {
		return ""
	}
	snapshot, _ := u.disk.NewestSnapshot()
	reserve := max(u.o.DiskReserve, 2*snapshot)
	switch {
	case free-less >= reserve:
		return ""
	case less > 0:
		return fmt.Sprintf("the disk of %s has %d MiB left: too little for %d MiB more, because %d MiB are "+
			"kept free for log and snapshots", u.o.Dir, free>>20, less>>20, reserve>>20)
	}
	return fmt.Sprintf("the disk of %s has %d MiB left, less than the %d MiB kept free for log and snapshots",
		u.o.Dir, free>>20, reserve>>20)
}

// ErrNoRoom is the error for a disk that would have too little free space.
var ErrNoRoom = errors.New("no room")

// Room returns an error if this server's disk has no room for so many bytes.
func (u *Upkeep) Room(bytes int64) error {
	if u.disk.InMemory() || u.o.DiskReserve < 0 {
		return nil
	}
	if why := u.lowWith(bytes); why != "" {
		return fmt.Errorf("%w: %s; make room and try again", ErrNoRoom, why)
	}
	return nil
}

// Fits returns an error if a backup of so many nodes and bytes is too large for this server.
func (u *Upkeep) Fits(nodes int, bytes int64) error {
	switch {
	case u.o.MaxNodes > 0 && nodes > u.o.MaxNodes:
		return fmt.Errorf("the backup has %d nodes, and no more than %d are allowed", nodes, u.o.MaxNodes)
	case u.o.MaxBytes > 0 && bytes > u.o.MaxBytes:
		return fmt.Errorf("the data of the backup are %d bytes, and no more than %d are allowed", bytes,
			u.o.MaxBytes)
	}
	return nil
}
