// Package config writes down the members of a cluster as the lines of a node that clients of ZooKeeper read,
// and reads such lines. It knows no state.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxID is the largest id that an operator can give a server.
const MaxID = 254

// ZeroID is the id of the server that has number 0 in a ZooKeeper's configuration. In zlockd 0 is not a
// server's id.
const ZeroID = 255

// IsID reports whether a server can have this id.
func IsID(id uint32) bool { return id >= 1 && id <= ZeroID }

// Path is the node in which clients read the members of the cluster. Its data have a line for each
// server and then the version:
//
//	server.N=host:port:port[:role][;[host:]port]
//	version=hexadecimal
const Path = "/zookeeper/config"

// Server is one server's line of Path or of zoo.cfg.
type Server struct {
	ID       uint32
	Peer     string // host:port
	Election string // port; empty: not given
	Client   string // host:port; empty: not given
	Voter    bool
}

// Line returns the server's line in the form that clients of ZooKeeper read. No zlockd uses the election
// port. The line still has one, because Java clients insist on three different ports.
func (s *Server) Line() string {
	role := "participant"
	if !s.Voter {
		role = "observer"
	}
	election := s.Election
	if election == "" {
		election = strconv.Itoa(otherPort(portOf(s.Peer), portOf(s.Client)))
	}
	line := fmt.Sprintf("server.%d=%s:%s:%s", s.ID%ZeroID, s.Peer, election, role)
	if s.Client != "" {
		line += ";" + s.Client
	}
	return line
}

func portOf(addr string) int {
	n, _ := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	return n
}

// otherPort returns a port near `peer` that differs from `peer` and from `client`.
func otherPort(peer, client int) int {
	for p := peer + 1; p <= 65535; p++ {
		if p != client {
			return p
		}
	}
	if peer-2 == client {
		return peer - 1
	}
	return peer - 2
}

// ErrNumber marks text in a line that is not a number, or a number out of range. ZooKeeper has a different
// answer for it than for other errors.
var ErrNumber = errors.New("not a valid number")

// ParseServer reads a line as ZooKeeper reads the line of a server that joins. The id may be one that no
// zlockd can have; see ServerID.
func ParseServer(line string) (Server, error) {
	key, value, ok := strings.Cut(line, "=")
	if !ok || strings.Contains(value, "=") {
		return Server{}, fmt.Errorf("%q is not server.N=host:port:port;port", line)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(key[strings.LastIndexByte(key, '.')+1:]), 10, 64)
	if err != nil {
		return Server{}, fmt.Errorf("%w: the id in %q", ErrNumber, line)
	}
	s := Server{ID: ServerID(n)}
	if err := s.parse(value, true); err != nil {
		return s, fmt.Errorf("server.%d: %w", n, err)
	}
	return s, nil
}

// ParseAddresses reads the text after "server.N=" in a zoo.cfg. A single port is enough, or the same port
// twice: no zlockd listens on the second.
func ParseAddresses(id uint32, value string) (Server, error) {
	s := Server{ID: id}
	err := s.parse(value, false)
	return s, err
}

// parse() reads host:port:port[:role][;[host:]port]. If `two` is true, the first two ports must be present
// and differ. Otherwise parse() keeps a second port only if it differs from the first.
func (s *Server) parse(value string, two bool) error {
	s.Voter = true
	where, client, _ := strings.Cut(strings.TrimSpace(value), ";")
	if strings.Contains(where, "|") {
		return errors.New("several addresses for one server are not supported: name one")
	}
	host, rest := cutHost(where)
	fields := strings.Split(rest, ":")
	if !isHost(host) || len(fields) > 3 || two && len(fields) < 2 {
		return fmt.Errorf("%q is not host:port:port or host:port:port:role, such as lock1:2888:3888", where)
	}
	for _, port := range fields[:min(len(fields), 2)] {
		if err := checkPort(port); err != nil {
			return err
		}
	}
	s.Peer = joinHost(host, fields[0])
	switch {
	case len(fields) == 1:
	case fields[0] != fields[1]:
		s.Election = fields[1]
	case two:
		return fmt.Errorf("both ports are %s: they must differ", fields[0])
	}
	if len(fields) == 3 {
		switch strings.ToLower(strings.TrimSpace(fields[2])) {
		case "participant":
		case "observer":
			s.Voter = false
		default:
			return fmt.Errorf("role %s is neither participant nor observer", fields[2])
		}
	}
	if client == "" {
		return nil
	}
	host, port := cutHost(client)
	if port == "" {
		host, port = "0.0.0.0", client
	}
	if !isHost(host) {
		return fmt.Errorf("%q is not [host:]port", client)
	}
	if err := checkPort(port); err != nil {
		return err
	}
	s.Client = joinHost(host, port)
	return nil
}

// ServerID is the zlockd id of server n of a ZooKeeper. If no zlockd can have the number n, the result is
// above ZeroID: a Server can have such an id, but IsID refuses it.
func ServerID(n int64) uint32 {
	switch {
	case n == 0:
		return ZeroID
	case n >= 1 && n <= MaxID:
		return uint32(n)
	}
	return 1<<31 | uint32(n)
}

// isHost reports whether text can stand for a host in a line.
func isHost(text string) bool {
	odd := func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
			strings.ContainsRune("-._:%", r))
	}
	return text != "" && len(text) <= 255 && !strings.ContainsFunc(text, odd)
}

// checkPort returns an error if the number of a port is wrong. It accepts 0, at which no server can be
// reached.
func checkPort(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return fmt.Errorf("port %q is not a number", text)
	case n < 0 || n > 65535:
		return fmt.Errorf("%w: port %s", ErrNumber, text)
	}
	return nil
}

// IsPort reports whether text is the number of a port.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// cutHost cuts at the first colon after the host, which may be in brackets.
func cutHost(s string) (host, rest string) {
	if end := strings.Index(s, "]:"); strings.HasPrefix(s, "[") && end > 0 {
		return s[1:end], s[end+2:]
	}
	host, rest, _ = strings.Cut(s, ":")
	return host, rest
}

func joinHost(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// Describe takes the election port and the client address of the server from `words`, the lines that an
// operator wrote for Path. It does nothing if these lines do not name the server with the same peer address.
func (s *Server) Describe(words map[uint32]Server) {
	w, ok := words[s.ID]
	if !ok || w.Peer != s.Peer {
		return
	}
	s.Election = w.Election
	if w.Client != "" {
		s.Client = w.Client
	}
}

// Text is the text of Path before its version.
func Text(servers []Server) string {
	lines := make([]string, len(servers))
	for i := range servers {
		lines[i] = servers[i].Line()
	}
	return strings.Join(lines, "\n")
}

// TellsClients reports whether every line of a text has the server's address for clients.
func TellsClients(text []byte) bool {
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte{';'}) {
			return false
		}
	}
	return true
}

const versionLine = "\nversion="

// WithVersion is the whole text of Path.
func WithVersion(text []byte, version int64) []byte {
	return fmt.Appendf(nil, "%s%s%x", text, versionLine, version)
}

// Cut splits the text of Path into the output of Text and the version. The version is 0 if
// the text has none.
func Cut(data string) (text string, version int64) {
	i := strings.LastIndex(data, versionLine)
	if i < 0 {
		return data, 0
	}
	version, err := strconv.ParseInt(data[i+len(versionLine):], 16, 64)
	if err != nil {
		version = 0
	}
	return data[:i], version
}

// Parse reads the text of Path and skips lines that it does not understand.
func Parse(data string) (servers []Server, version int64) {
	text, version := Cut(data)
	for line := range strings.Lines(text) {
		if s, err := ParseServer(strings.TrimSpace(line)); err == nil {
			servers = append(servers, s)
		}
	}
	return servers, version
}
