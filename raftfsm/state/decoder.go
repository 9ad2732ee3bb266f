package state

import (
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
)

// decoder takes the chunks of a snapshot, in the order in which chunkWriter writes them.
type decoder struct {
	state    *State
	at       Position
	chunks   uint32
	sessions []byte // encoded, until they are loaded
	loaded   bool
	nodes    func(chunk []byte) error
	whole    bool
}

// take takes the next chunk. It keeps nothing of the payload.
func (d *decoder) take(kind byte, payload []byte) error {
	if err := d.chunk(kind, payload); err != nil {
		return fmt.Errorf("snapshot chunk %d: %w", d.chunks, err)
	}
	d.chunks++
	return nil
}

func (d *decoder) chunk(kind byte, payload []byte) (err error) {
	switch {
	case d.whole:
		return errors.New("bytes behind the end of the snapshot")
	case kind == chunkHeader && d.chunks == 0:
		d.state = new(State)
		d.at, err = d.state.loadHeader(payload)
		return err
	case kind == chunkSessions && d.chunks == 1, kind == chunkMore && d.chunks > 1 && !d.loaded:
		d.sessions = append(d.sessions, payload...)
		return nil
	case kind == chunkNodes && d.chunks > 1:
		if err := d.loadSessions(); err != nil {
			return err
		}
		return d.nodes(payload)
	case kind == chunkEnd && d.loaded:
		err := checkCount(payload, d.chunks)
		d.whole = err == nil
		return err
	}
	return fmt.Errorf("chunk of kind %d is out of place", kind)
}

// loadSessions loads the sessions when all of them have been taken.
func (d *decoder) loadSessions() error {
	if d.loaded {
		return nil
	}
	d.loaded = true
	d.state.sessions = session.NewTable(0)
	dec := jute.NewDecoder(d.sessions)
	if err := d.state.sessions.Load(&dec); err != nil {
		return err
	}
	if len(dec.Rest()) > 0 {
		return errors.New("bytes behind the sessions")
	}
	d.sessions = nil
	return nil
}
