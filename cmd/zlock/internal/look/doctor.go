package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Doctor is zlock doctor.
func Doctor() *call.Command {
	return &call.Command{
		Name: "doctor", Args: "",
		Does:   "check each server, and show what locks can rely on",
		Prints: []any{finding{}, trouble{}},
		Help: `Connects to each server separately, and compares their answers with each other and with
the list. The clock offset is only information: no lock depends on the time of day. A holder
stops before the server may grant its lock to another client; the margin is the time
between the two. The time of a sync of the log and the number of open files come from
the server's mntr. A zlockd judges itself, and says what to do: doctor reads /health at
the host of each server and the port of --admin-addr, or at an address for each server.
Exit code: 0, or 1 if something is wrong.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			var killAfter time.Duration = 5 * time.Second
			call.AddDuration(fs, &killAfter, "kill-after", "k",
				"judge the session timeout for 'zlock run' with this --kill-after")
			format := call.AddFormat(fs)
			conn := connect.AddFlags(fs)
			admin := &connect.AdminFlags{}
			admin.AddTo(fs)
			return func(c *call.Call) error {
				return doctor(c, conn, admin, killAfter, *format)
			}
		},
	}
}

// cells() returns the cells of the row for a server. Scripts read the plain output by position, so new
// columns come at its end.
func (f *finding) cells(plain bool) []any {
	verdict := "ok"
	switch {
	case f.Problem != "":
		verdict = f.Problem
	case f.Note != "":
		verdict = "ok; " + f.Note
	}
	list := []any{f.Server, "-", "-", "-", "-", "-", "-", "-", "-"}
	more := []any{"-", "-", "-", "-"}
	if !f.unreachable {
		list = []any{f.Server, f.Kind, f.Mode, seconds(f.Timeout), fmt.Sprintf("%.2fms", f.RoundTrip),
			fmt.Sprintf("%+.1fs", f.Offset),
			yesNo(f.Containers), yesNo(f.Multi), seconds(f.Margin)}
		more[0] = f.Version
		if f.Sync != nil {
			more[1] = fmt.Sprintf("%.2fms", *f.Sync)
		}
		if f.MaxFiles > 0 {
			more[2] = fmt.Sprintf("%d/%d", f.OpenFiles, f.MaxFiles)
		}
		if f.Certificate != nil {
			more[3] = f.Certificate.Format(time.DateOnly)
		}
	}
	if plain {
		return append(append(list, verdict), more...)
	}
	return append(append(list, more...), verdict)
}

func doctor(c *call.Call, conn *connect.Flags, admin *connect.AdminFlags, killAfter time.Duration,
	format string) error {
	servers, chroot, err := conn.Address(c.Getenv)
	if err != nil {
		return err
	}
	if _, err := conn.Options(c.App); err != nil {
		return err
	}
	if cfg, err := conn.TLSConfig(); err == nil && cfg != nil && len(cfg.Certificates) > 0 {
		if left := time.Until(cfg.Certificates[0].Leaf.NotAfter); left < certificateSoon {
			c.Say("the certificate of --tls-cert %s", endsIn(left))
		}
	}
	ctx, stop := call.Interruptible()
	defer stop()
	p := c.Printer(format, "SERVER", "KIND", "MODE", "TIMEOUT", "ROUND-TRIP", "CLOCK", "CONTAINERS", "MULTI",
		"MARGIN",
		"VERSION", "SYNC", "FILES", "CERTIFICATE", "VERDICT")
	list, _, err := zk.ParseServers(servers)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	listeners, err := adminsOf(list, admin.Address(c))
	if err != nil {
		return err
	}
	var found []finding
	for i, server := range list {
		f := examine(ctx, c, conn, server, chroot, killAfter)
		if err := askHealth(ctx, c, &f, admin, listeners[i]); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		found = append(found, f)
		var row any = f
		if f.unreachable {
			row = trouble{f.Server, f.Problem}
		}
		p.Row(row, f.cells(format == call.Plain)...)
	}
	if err := p.Flush(); err != nil {
		return err
	}
	bad := slices.ContainsFunc(found, func(f finding) bool { return f.Problem != "" })
	wrong, worth := compare(ctx, found, list)
	for _, line := range append(wrong, worth...) {
		c.Say("%s", line)
	}
	if !slices.ContainsFunc(found, func(f finding) bool { return !f.unreachable || !f.down }) {
		c.Say("%s", wayOut(list))
	}
	if bad || len(wrong) > 0 {
		return cli.Exit(call.ExitNo)
	}
	return nil
}

// wayOut returns advice for the case that none of the named servers serves. If the user has not named all
// servers, the others may still have a majority.
func wayOut(list []string) string {
	if len(list) == 1 {
		return list[0] + " does not serve, and no other server was named: name all servers of the cluster, and " +
			"start this one"
	}
	return "none of these servers serves. Start them: as soon as a majority runs, it serves again, with " +
		"all its data; " +
		"the page /ready of an admin listener says what its server waits for. " +
		"Only if the disks of a majority are lost, see: zlockd recover --help"
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

// examine examines one server.
func examine(ctx context.Context, c *call.Call, conn *connect.Flags, server, chroot string,
	killAfter time.Duration) finding {
	f := finding{Server: server, Kind: "unknown"}
	problem := func(format string, args ...any) finding {
		f.Problem = fmt.Sprintf(format, args...)
		return f
	}
	srvr, cert, err := word(ctx, conn, server, "srvr")
	if err != nil {
		var sys syscall.Errno
		var shake *handshakeError
		f.unreachable, f.down = true, !errors.As(err, &shake) && errors.As(err, &sys) ||
			errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		return problem("%s", plainCause(err, conn.ConnectTimeout))
	}
	f.Certificate = cert
	f.readSrvr(srvr)
	f.asked = time.Now()
	mntr, _, _ := word(ctx, conn, server, "mntr") // ignore an error: srvr has shown whether the server answers
	f.readMntr(mntr)
	one := *conn
	one.Servers, one.Chroot, one.Margin, one.Quiet = server, chroot, 0, true // no margin: judge() checks it
	cl, err := connect.Dial(ctx, c, &one)
	if err != nil {
		// A server that is asked over the wrong protocol is not down: then the mistake is in this call.
		f.unreachable, f.down = true, strings.Contains(srvr, "ZooKeeper") || strings.Contains(srvr, "Zookeeper")
		text := strings.ReplaceAll(err.Error(), ": "+server+": ", ": ")
		switch {
		case srvr == "" && errors.Is(err, zk.ErrSilent):
			text += ": " + hangs
		case srvr == "" && errors.Is(err, zk.ErrNotServing):
			text += "; a port for other servers does the same, so check the port"
		}
		return problem("%s", text)
	}
	defer connect.HangUp(c, cl)
	s := cl.Session()
	f.Timeout, f.Margin = s.Timeout.Seconds(), s.Margin.Seconds()
	err = probe(ctx, &f, chroot, &one)
	if errors.Is(err, zk.ErrThrottled) {
		return problem("it refuses new nodes and new locks: its free disk space is below --disk-reserve, " +
			"or --max-nodes or --max-data is reached; /health of its admin listener names the limit. " +
			"Existing nodes stay, and deletions free room")
	}
	if err != nil {
		return problem("%v", err)
	}
	if !f.Multi {
		return problem("transactions are not supported")
	}
	if need := connect.NeededTimeout(connect.MarginFor(killAfter)); s.Timeout < need {
		return problem("session timeout %v is too short for 'zlock run --kill-after %v': %v needed", s.Timeout,
			killAfter, need)
	}
	f.judge(s.Timeout < conn.SessionTimeout, conn.SessionTimeout)
	return f
}

// probe() measures how fast a server answers. It uses a connection of its own, and no lock.
func probe(ctx context.Context, f *finding, chroot string, conn *connect.Flags) error {
	cfg, err := conn.TLSConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.ConnectTimeout)
	defer cancel()
	o := zk.Options{Timeout: conn.SessionTimeout, Auth: conn.Credentials, TLS: cfg}
	raw, err := zk.Dial(ctx, f.Server, o)
	if err != nil {
		return fmt.Errorf("no second session: %w", err)
	}
	defer func() { _ = raw.Close(ctx) }() // if this fails, the session ends by its timeout
	best := time.Hour
	for range 5 {
		begun := time.Now()
		if _, err := raw.Exists(ctx, "/"); err != nil {
			return err
		}
		best = min(best, time.Since(begun))
	}
	f.RoundTrip = float64(best.Microseconds()) / 1000
	if n, err := raw.Get(ctx, "/zookeeper/config"); err == nil { // not every client may read it: ignore an error
		f.config = string(n.Data)
	}
	return probeWrites(ctx, f, raw, chroot)
}

// probeWrites shows whether a session can write. It creates a node, as a container if the server has these,
// and removes it in a transaction.
func probeWrites(ctx context.Context, f *finding, raw *zk.Conn, chroot string) error {
	parent := ""
	if chroot != "" {
		if st, err := raw.Exists(ctx, chroot); err == nil && st != nil {
			parent = chroot
		}
	}
	node := zk.Create{Path: fmt.Sprintf("%s/zlock-doctor-%d", parent, time.Now().UnixNano()), Mode: zk.Container}
	_, err := raw.Create(ctx, node)
	f.Containers = err == nil
	if errors.Is(err, zk.ErrNoAuth) {
		f.note("no right to create nodes at %s/: containers and transactions were not tried", parent)
		f.Containers, f.Multi = true, true
		return nil
	}
	if err != nil {
		node.Mode = zk.Persistent
		if _, err := raw.Create(ctx, node); err != nil {
			return err
		}
	}
	res, err := raw.Multi(ctx, zk.SetData{Path: node.Path, Data: []byte("x"), Version: 0}, zk.Delete{
		Path: node.Path, Version: -1})
	if f.Multi = err == nil; !f.Multi {
		return raw.Delete(ctx, node.Path, -1)
	}
	f.Offset = time.Until(time.UnixMilli(res[0].Stat.Mtime)).Round(100 * time.Millisecond).Seconds()
	return nil
}
