package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/test/cluster"

	_ "embed"
)

//go:embed floor/floor.c
var floorSource []byte

// floor holds the processes of a C program that does only what every server must do: it handles the messages
// of clients and servers, and syncs. Only the time beyond the floor is a server's own.
type floor struct {
	list []*exec.Cmd
}

// newFloor builds the program and starts it as one server or three. There is no floor without a C compiler.
func newFloor(c *config) (s *side, err error) {
	s = &side{name: "floor", floor: &floor{}}
	if s.base, err = os.MkdirTemp(c.dir, "zlockd-floor-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	source, program := filepath.Join(s.base, "floor.c"), filepath.Join(s.base, "floor")
	if err := os.WriteFile(source, floorSource, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-O2", "-o", program, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	ports, err := cluster.FreePorts(c.nodes + 1)
	if err != nil {
		return nil, err
	}
	for i := range c.nodes {
		dir := filepath.Join(s.base, strconv.Itoa(i+1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		cmd := exec.Command(program, strconv.Itoa(i+1), dir, portOf(ports[i]), portOf(ports[c.nodes]),
			strconv.Itoa(c.nodes))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		s.floor.list = append(s.floor.list, cmd)
		s.external = append(s.external, ports[i])
	}
	// A follower listens once the leader knows it. Without followers, the leader would not answer its clients.
	for _, addr := range s.external {
		if err := answers(addr); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func answers(addr string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return errors.Join(errors.New("the floor does not start"), err)
		}
	}
}

func (f *floor) pids() (list []int) {
	for _, c := range f.list {
		list = append(list, c.Process.Pid)
	}
	return list
}

func (f *floor) close() {
	for _, c := range f.list {
		c.Process.Kill()
		c.Wait()
	}
}

// withFloor adds the floor to the sides, or says why there is no floor.
func (c *config) withFloor(sides []*side, w io.Writer) []*side {
	s, err := newFloor(c)
	if err != nil {
		fmt.Fprintf(w, "no floor is measured, because its program does not start: %v\n", err)
		return sides
	}
	return append(sides, s)
}
