package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// The type `chunks` receives a snapshot in pieces of any length, and cuts it into its chunks. It verifies
// each chunk and passes it to take(), which must not keep the chunk's memory.
type chunks struct {
	take  func(kind byte, payload []byte) error
	rest  []byte // bytes that do not make a whole chunk yet
	magic bool   // the magic line has arrived
	count uint32 // how many chunks have arrived
	whole bool   // the end chunk has arrived
}

var (
	errNoSnapshot = errors.New("not a snapshot this program can read")
	errLostChunks = errors.New("snapshot has lost chunks")
	errNoPlace    = errors.New("the chunk is out of place")
	errBehind     = errors.New("bytes follow the end of the snapshot")
)

// Write adds the next piece.
func (c *chunks) Write(piece []byte) (int, error) {
	c.rest = append(c.rest, piece...)
	rest, err := c.cut(c.rest)
	if len(rest) < len(c.rest) { // do not copy a long chunk for every piece
		c.rest = append(c.rest[:0], rest...)
	}
	return len(piece), err
}

// cut handles every complete chunk of b and returns the bytes after them.
func (c *chunks) cut(b []byte) (rest []byte, err error) {
	if !c.magic {
		if len(b) < len(snapshotMagic) {
			return b, nil
		}
		if string(b[:len(snapshotMagic)]) != snapshotMagic {
			return nil, errNoSnapshot
		}
		c.magic, b = true, b[len(snapshotMagic):]
	}
	for len(b) >= chunkFrame {
		n := binary.BigEndian.Uint32(b[1:])
		if n > MaxChunk {
			return nil, fmt.Errorf("snapshot chunk %d has an impossible length of %d bytes", c.count, n)
		}
		end := chunkFrame + int(n)
		if len(b) < end {
			break
		}
		if err := c.chunk(b[:chunkFrame], b[chunkFrame:end]); err != nil {
			return nil, err
		}
		b = b[end:]
	}
	return b, nil
}

func (c *chunks) chunk(head, payload []byte) error {
	kind := head[0]
	switch {
	case chunkSum(kind, payload) != binary.BigEndian.Uint32(head[5:]):
		return fmt.Errorf("snapshot chunk %d is damaged: its checksum is wrong", c.count)
	case c.whole:
		return errBehind
	case kind == chunkEnd && (len(payload) != 4 || binary.BigEndian.Uint32(payload) != c.count):
		return errLostChunks
	}
	if err := c.take(kind, payload); err != nil {
		return fmt.Errorf("snapshot chunk %d of kind %d: %w", c.count, kind, err)
	}
	c.count++
	c.whole = kind == chunkEnd
	return nil
}

// read() reads a whole snapshot.
func (c *chunks) read(from io.Reader) error {
	if _, err := io.CopyBuffer(c, from, make([]byte, 256<<10)); err != nil {
		return err
	}
	if c.whole && len(c.rest) > 0 {
		return errBehind
	}
	return c.end()
}

// end() returns nil if the snapshot is whole.
func (c *chunks) end() error {
	switch {
	case !c.magic:
		return errNoSnapshot
	case !c.whole:
		return fmt.Errorf("snapshot ends in chunk %d: %w", c.count, io.ErrUnexpectedEOF)
	}
	return nil
}

// CheckSnapshot verifies every chunk of a snapshot, and that no chunk is missing. It keeps no chunk.
func CheckSnapshot(from io.Reader) error {
	c := chunks{take: func(byte, []byte) error { return nil }}
	return c.read(from)
}

// ReadPosition returns a snapshot's place in the log. It reads only the beginning of the snapshot.
func ReadPosition(from io.Reader) (Position, error) {
	_, at, err := readHead(from)
	return at, err
}

// ReadCluster returns the cluster to which a snapshot belongs. It reads only the beginning of the snapshot.
func ReadCluster(from io.Reader) (string, error) {
	s, _, err := readHead(from)
	return s.clusterID, err
}

// readHead reads a snapshot's first chunk.
func readHead(from io.Reader) (s *State, at Position, err error) {
	enough := errors.New("the head is known")
	s = new(State)
	c := chunks{take: func(kind byte, payload []byte) (err error) {
		if kind != chunkHeader {
			return errNoPlace
		}
		if at, err = s.loadHeader(payload); err != nil {
			return err
		}
		return enough
	}}
	if err = c.read(from); errors.Is(err, enough) {
		err = nil
	}
	return s, at, err
}

// decoder builds a state from the chunks of a snapshot.
type decoder struct {
	chunks
	state    *State
	at       Position
	sessions []byte // the encoded sessions, until they are loaded
	loaded   bool
	begin    func(*State) error // called before the first nodes, if not nil
	refuses  bool               // whether to refuse a state with tickets
	tickets  []byte             // the encoded tickets, until they are loaded
	nodes    *tree.Loader
}

func newDecoder(begin func(*State) error, nodes *tree.Loader) *decoder {
	d := &decoder{begin: begin, nodes: nodes}
	d.take = d.decode
	return d
}

func (d *decoder) decode(kind byte, payload []byte) (err error) {
	switch {
	case kind == chunkHeader && d.count == 0:
		d.state = new(State)
		d.at, err = d.state.loadHeader(payload)
		return err
	case kind == chunkSessions && d.count == 1,
		kind == chunkMore && d.count > 1 && !d.loaded && !d.state.ticketing:
		d.sessions = append(d.sessions, payload...)
		return nil
	case kind == chunkTickets && d.count > 1 && !d.loaded:
		if d.refuses {
			return errTicketing
		}
		d.state.ticketing = true
		d.tickets = append(d.tickets, payload...)
		return nil
	case kind == chunkNodes && d.count > 1:
		if err := d.loadSessions(); err != nil {
			return err
		}
		return d.nodes.Add(payload)
	case kind == chunkEnd && d.loaded:
		return nil
	}
	return errNoPlace
}

// loadSessions loads the sessions once all of their chunks have arrived, and marks the sessions that are
// tickets.
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
		return errors.New("bytes follow the sessions")
	}
	d.sessions = nil
	if d.state.ticketing {
		dec := jute.NewDecoder(d.tickets)
		if err := d.state.sessions.LoadTickets(&dec); err != nil {
			return err
		}
		if err := d.state.begun.load(&dec); err != nil {
			return err
		}
		d.tickets = nil
	}
	if d.begin == nil {
		return nil
	}
	return d.begin(d.state)
}

// ReadNodes reads and verifies a whole snapshot, and returns the state without its tree. Before the first
// node it calls begin() with that state. Then it calls each() for every node.
func ReadNodes(from io.Reader, begin func(*State) error, each func(path string, i *tree.Info) error) (*State,
	error) {
	d := newDecoder(begin, tree.NewReader(each))
	if err := d.read(from); err != nil {
		return nil, err
	}
	return d.state, d.nodes.Done()
}

// ReadSnapshot reads and verifies a whole snapshot, and returns the state and its place in the log.
func ReadSnapshot(from io.Reader) (*State, Position, error) {
	d := newDecoder(nil, tree.NewLoader())
	err := d.read(from)
	if err == nil {
		err = d.finish()
	}
	if err != nil {
		return nil, d.at, err
	}
	return d.state, d.at, nil
}

// finish() adds the nodes to the state, after the whole snapshot has been read.
func (d *decoder) finish() error {
	t, err := d.nodes.Finish()
	if err != nil {
		return err
	}
	return d.state.complete(t)
}

// complete() adds the tree to the state, and checks that the tree fits the sessions and the rates.
func (s *State) complete(t *tree.Tree) error {
	s.tree = t
	info, _ := s.tree.Get(config.Path)
	s.configured = len(info.Data) > 0
	// An ephemeral node without its session would stay forever.
	for id := range s.tree.Owners() {
		if _, ok := s.sessions.Get(id); !ok {
			return fmt.Errorf("a node belongs to session 0x%x, which does not exist", id)
		}
	}
	for path := range s.begun.by { // a rate without its node would count forever
		if _, there := s.tree.Find(path); !there {
			return fmt.Errorf("rate %.200q without a node", path)
		}
	}
	return nil
}

// Backup describes the content of a backup.
type Backup struct {
	Cluster  string
	Zxid     int64
	Nodes    int
	Sessions int
	Bytes    int64 // the bytes of the nodes, as Tree.Bytes counts them
}

// CheckBackup reads a backup to its end and describes it.
func CheckBackup(r io.Reader) (*Backup, error) {
	b := new(Backup)
	s, err := ReadNodes(r, nil, func(path string, i *tree.Info) error {
		b.Nodes++
		b.Bytes += int64(len(path) + len(i.Data))
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.Cluster, b.Zxid, b.Sessions = s.ClusterID(), s.Zxid(), s.Sessions().Len()
	return b, nil
}
