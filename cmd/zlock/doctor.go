package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
)

func doctorCommand() *command {
	return &command{
		name: "doctor", args: "",
		does: "look at each server and tell what locks can rely on",
		help: `Connects to each server by itself. The clock offset is informative: no lock depends
on the time of day. The margin is how long before the server may give a lock away
its holder stops. Exit code: 0, or 1 if something is wrong.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			var killAfter time.Duration = 5 * time.Second
			addDuration(fs, &killAfter, "kill-after", "k", "judge the session timeout for 'zlock run' with this --kill-after")
			format := addFormat(fs)
			conn := addConnectFlags(fs)
			return func(c *call) error {
				if err := c.operands(0, 0); err != nil {
					return err
				}
				return c.doctor(conn, killAfter, *format)
			}
		},
	}
}

// finding is what doctor knows of one server.
type finding struct {
	Server     string  `json:"server"`
	Kind       string  `json:"kind"`
	Mode       string  `json:"mode,omitempty"`
	Timeout    float64 `json:"sessionTimeoutSeconds"`
	RoundTrip  float64 `json:"roundTripMs"`
	Offset     float64 `json:"clockOffsetSeconds"`
	Containers bool    `json:"containers"`
	Multi      bool    `json:"multi"`
	Margin     float64 `json:"marginSeconds"`
	Problem    string  `json:"problem,omitempty"`
	Note       string  `json:"note,omitempty"`
}

func (c *call) doctor(conn *connectFlags, killAfter time.Duration, format string) error {
	servers, chroot, err := conn.address(c.getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	p := c.printer(format, "SERVER", "KIND", "MODE", "TIMEOUT", "ROUND-TRIP", "CLOCK", "CONTAINERS", "MULTI", "MARGIN", "VERDICT")
	bad := false
	for _, server := range strings.Split(servers, ",") {
		f := c.examine(ctx, conn, strings.TrimSpace(server), chroot, killAfter)
		if ctx.Err() != nil {
			return asExit(context.Cause(ctx))
		}
		verdict := "ok"
		if f.Note != "" {
			verdict = "ok; " + f.Note
		}
		if f.Problem != "" {
			bad, verdict = true, f.Problem
		}
		p.row(f, f.Server, f.Kind, f.Mode, seconds(f.Timeout), fmt.Sprintf("%.2fms", f.RoundTrip), fmt.Sprintf("%+.1fs", f.Offset),
			yesNo(f.Containers), yesNo(f.Multi), seconds(f.Margin), verdict)
	}
	if err := p.flush(); err != nil {
		return err
	}
	if bad {
		return exit(exitNo)
	}
	return nil
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// examine looks at one server.
func (c *call) examine(ctx context.Context, conn *connectFlags, server, chroot string, killAfter time.Duration) finding {
	f := finding{Server: server, Kind: "unknown"}
	problem := func(format string, args ...any) finding {
		f.Problem = fmt.Sprintf(format, args...)
		return f
	}
	if text := fourLetter(server, "srvr", conn.connectTimeout); text != "" && conn.serverName == "" && !conn.tls {
		f.Kind, f.Mode = readSrvr(text)
	}
	one := *conn
	one.servers, one.chroot, one.margin = server, chroot, 0
	cl, err := c.connect(ctx, &one)
	if err != nil {
		return problem("%v", err)
	}
	defer c.disconnect(cl)
	s := cl.Session()
	f.Timeout, f.Margin = s.Timeout.Seconds(), s.Margin.Seconds()
	if err := c.probe(ctx, &f, cl, server, &one); err != nil {
		return problem("%v", err)
	}
	switch {
	case !f.Multi:
		return problem("transactions are not supported")
	case s.Timeout < conn.sessionTimeout:
		f.Note = fmt.Sprintf("it grants less than the %v asked for", conn.sessionTimeout)
	case !f.Containers:
		f.Note = "no containers: empty lock directories stay"
	}
	if need := neededTimeout(marginFor(killAfter)); s.Timeout < need {
		return problem("session timeout %v is too short for 'zlock run --kill-after %v': %v needed", s.Timeout, killAfter, need)
	}
	if f.Kind == "zookeeper" && f.Mode != "standalone" && f.Mode != "" {
		f.Note = strings.TrimPrefix(f.Note+"; a follower cut off from its leader may answer for syncLimit ticks: the margin must exceed that", "; ")
	}
	return f
}

// probe measures with a connection of its own, without a lock.
func (c *call) probe(ctx context.Context, f *finding, cl *client.Client, server string, conn *connectFlags) error {
	raw, events, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithDialer(conn.dialer()))
	if err != nil {
		return err
	}
	defer raw.Close()
	deadline := time.After(conn.connectTimeout)
	for connected := false; !connected; {
		select {
		case ev := <-events:
			connected = ev.State == zk.StateHasSession
		case <-deadline:
			return fmt.Errorf("no second session in time")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, cr := range conn.credentials {
		if err := raw.AddAuth(cr[0], []byte(cr[1])); err != nil {
			return err
		}
	}
	best := time.Hour
	for range 5 {
		begun := time.Now()
		if _, _, err := raw.Exists("/"); err != nil {
			return err
		}
		best = min(best, time.Since(begun))
	}
	f.RoundTrip = float64(best.Microseconds()) / 1000
	return probeWrites(f, raw, cl.Chroot())
}

// probeWrites makes a node, a container if possible, and removes it in a transaction.
func probeWrites(f *finding, raw *zk.Conn, chroot string) error {
	parent := ""
	if ok, _, err := raw.Exists(chroot + "/"); chroot != "" && err == nil && ok {
		parent = chroot
	}
	path := fmt.Sprintf("%s/zlock-doctor-%d", parent, time.Now().UnixNano())
	acl := zk.WorldACL(zk.PermAll)
	_, err := raw.CreateContainer(path, []byte{}, zk.FlagContainer, acl)
	f.Containers = err == nil
	if errors.Is(err, zk.ErrNoAuth) {
		f.Note = "not allowed to create nodes at " + parent + "/: containers and transactions not tried"
		f.Multi = true
		return nil
	}
	if err != nil {
		if _, err := raw.Create(path, []byte{}, 0, acl); err != nil {
			return err
		}
	}
	res, err := raw.Multi(&zk.SetDataRequest{Path: path, Data: []byte("x"), Version: 0}, &zk.DeleteRequest{Path: path, Version: -1})
	if f.Multi = err == nil; !f.Multi {
		return raw.Delete(path, -1)
	}
	if st := res[0].Stat; st != nil {
		f.Offset = time.UnixMilli(st.Mtime).Sub(time.Now()).Round(100 * time.Millisecond).Seconds()
	}
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// fourLetter asks a server by a four-letter word; "" if it does not answer.
func fourLetter(server, word string, timeout time.Duration) string {
	conn, err := net.DialTimeout("tcp", withPort(server), min(timeout, 2*time.Second))
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte(word)); err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	return string(b)
}

func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err != nil {
		return net.JoinHostPort(server, "2181")
	}
	return server
}

// readSrvr finds kind and mode in the answer to srvr.
func readSrvr(text string) (kind, mode string) {
	kind = "unknown"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(strings.ToLower(line), "zlockd"):
			kind = "zlockd"
		case kind == "unknown" && strings.HasPrefix(line, "Zookeeper version:"):
			kind = "zookeeper"
		}
		if m, ok := strings.CutPrefix(line, "Mode: "); ok {
			mode = m
		}
	}
	return kind, mode
}

// dialer opens the connections that do not go through package client.
func (f *connectFlags) dialer() zk.Dialer {
	cfg, _ := f.tlsConfig() // checked when the client connected
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		if err != nil || cfg == nil {
			return conn, err
		}
		return tlsClient(conn, cfg, address), nil
	}
}
