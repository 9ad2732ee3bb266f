package settings

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// maxID is the largest id of a server.
const maxID = config.MaxID

// peersFlag is the flag --peers. It sets the addresses of the servers, and which servers have no vote.
type peersFlag struct {
	list      *map[uint32]string
	observers *[]uint32
}

func (s *Settings) peersFlag() peersFlag { return peersFlag{&s.Peers, &s.Observers} }

// asObserver is the suffix of an entry of --peers for a server without a vote.
const asObserver = ":observer"

// String implements pflag.Value.
func (p peersFlag) String() string {
	if p.list == nil {
		return "" // pflag calls String on a zero value, too
	}
	var parts []string
	for _, id := range ids(*p.list) {
		part := fmt.Sprintf("%d=%s", id, (*p.list)[id])
		if slices.Contains(*p.observers, id) {
			part += asObserver
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (p peersFlag) Type() string { return "ID=HOST:PORT,..." }

// Set implements pflag.Value.
func (p peersFlag) Set(s string) error {
	list := make(map[uint32]string)
	var observers []uint32
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		name, addr, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("entry %q is not ID=HOST:PORT, such as 1=lock1:2888", entry)
		}
		addr, observes := strings.CutSuffix(addr, asObserver)
		id, err := parseID(name)
		if err != nil {
			return fmt.Errorf("entry %q: %w", entry, err)
		}
		if err := checkAddr(addr); err != nil {
			return fmt.Errorf("entry %q: %w", entry, err)
		}
		if host, _, _ := net.SplitHostPort(addr); host == "" {
			return fmt.Errorf("entry %q has no host: the other servers must be able to reach it", entry)
		}
		if _, twice := list[id]; twice {
			return fmt.Errorf("server %d is listed twice", id)
		}
		for other, a := range list {
			if a == addr && !strings.HasSuffix(addr, ":0") {
				return fmt.Errorf("servers %d and %d have the same address %s", other, id, addr)
			}
		}
		list[id] = addr
		if observes {
			observers = append(observers, id)
		}
	}
	*p.list, *p.observers = list, observers
	return nil
}

// ids() returns the ids of peers in order.
func ids(peers map[uint32]string) []uint32 { return slices.Sorted(maps.Keys(peers)) }

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil || !config.IsID(uint32(n)) {
		return 0, fmt.Errorf("id %q is not a number from 1 to %d", s, maxID)
	}
	return uint32(n), nil
}

// zooID reads an id from ZooKeeper's files, which allow 0.
func zooID(s string) (uint32, error) {
	if strings.TrimSpace(s) == "0" {
		return config.ZeroID, nil
	}
	return parseID(s)
}

// checkAddr returns an error for a wrong address.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		if !strings.Contains(addr, ":") {
			return errors.New("the port is missing: want HOST:PORT, such as 127.0.0.1:2181")
		}
		return errors.New("want HOST:PORT, such as 127.0.0.1:2181 or [::1]:2181")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}
