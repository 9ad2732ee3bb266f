package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// maxID is the largest id of a server: it is one byte of every session id.
const maxID = 254

// peerList is --peers: the peer address of every server of the cluster.
type peerList map[uint32]string

// String implements pflag.Value.
func (p *peerList) String() string {
	var parts []string
	for _, id := range p.ids() {
		parts = append(parts, fmt.Sprintf("%d=%s", id, (*p)[id]))
	}
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (p *peerList) Type() string { return "ID=HOST:PORT,..." }

// Set implements pflag.Value.
func (p *peerList) Set(s string) error {
	list := make(peerList)
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		name, addr, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("entry %q is not ID=HOST:PORT, such as 1=lock1:2888", entry)
		}
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
			return fmt.Errorf("server %d is there twice", id)
		}
		for other, a := range list {
			if a == addr && !strings.HasSuffix(addr, ":0") {
				return fmt.Errorf("servers %d and %d have the same address %s", other, id, addr)
			}
		}
		list[id] = addr
	}
	*p = list
	return nil
}

func (p *peerList) ids() []uint32 { return slices.Sorted(maps.Keys(*p)) }

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil || n < 1 || n > maxID {
		return 0, fmt.Errorf("id %q is not a number from 1 to %d", s, maxID)
	}
	return uint32(n), nil
}

// checkAddr says what is wrong with an address to listen on or to reach.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		if !strings.Contains(addr, ":") {
			return errors.New("the port is missing: want HOST:PORT, such as 127.0.0.1:2181")
		}
		return errors.New("want HOST:PORT, such as 127.0.0.1:2181 or [::1]:2181")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	} else if n == 0 {
		return nil // any free one
	}
	return nil
}
