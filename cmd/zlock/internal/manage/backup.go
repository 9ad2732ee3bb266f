package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// Backup is zlock backup.
func Backup() *call.Command {
	return fetchCommand("backup", "zlockd", "write the whole state of a running zlockd to a file",
		`The backup holds the nodes and sessions of one moment; the servers continue to serve.
zlock checks it while it arrives. FILE appears only when it is complete and on the disk.
An existing FILE stays, unless --force is given. "-" is standard output. Needs the
password of the servers' --super-digest in --auth-file, because a backup holds all data.
To make a server from it: zlockd restore FILE --data-dir NEW.`)
}

// Export is zlock export.
func Export() *call.Command {
	return fetchCommand("export", "zookeeper",
		"write the whole state of a running zlockd as a ZooKeeper's snapshot",
		`Like backup, but writes a snapshot from which a ZooKeeper 3.8 or 3.9 starts, and prints
the name that the file must have. To export a stopped server: zlockd export.`)
}

// fetchCommand returns a command that writes the server's state to a file. `format` is the format of the
// file.
func fetchCommand(name, format, does, help string) *call.Command {
	return &call.Command{
		Name: name, Args: "FILE|-", Least: 1, Most: 1, Does: does, Help: help, Prints: []any{takenFile{}},
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			m, output := addStateFlags(fs), call.AddFormat(fs)
			force := fs.Bool("force", false, "replace FILE if there is one")
			return func(c *call.Call) error {
				if err := replaceable(c.Args[0], *force); err != nil {
					return err
				}
				return connect.WithAdmin(c, m, func(ctx context.Context, admin connect.Admin) error {
					return fetchState(ctx, c, admin, format, *output, *force)
				})
			}
		},
	}
}

// fetchState writes the state to the file of the command line, in the format `format`.
func fetchState(ctx context.Context, c *call.Call, admin connect.Admin, format, output string,
	force bool) error {
	body, err := admin.Open(ctx, http.MethodGet, "/commands/snapshot?format="+format, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	begun := time.Now()
	file, got := c.Args[0], &fetched{format: format}
	if file == "-" {
		err = got.copy(c.Stdout, body)
	} else {
		write := func(w io.Writer) error { return got.copy(w, body) }
		if force {
			err = vfs.Fill(file, write)
		} else {
			err = vfs.FillNew(file, 0o600, write)
		}
	}
	if errors.Is(err, os.ErrExist) && !force {
		return thereAlready(file)
	}
	if err != nil {
		left, hint := "nothing was written", ""
		if file == "-" {
			left = "the output is incomplete"
		}
		if errors.Is(err, syscall.ENOSPC) {
			hint = "; make room on that disk, and give the same command again"
		}
		return cli.Exitf(call.ExitNo, "%s: %v%s", left, err, hint)
	}
	took := time.Since(begun)
	switch {
	case file == "-":
		return nil
	case output != call.Table:
		p := c.Printer(output)
		zxid := fmt.Sprintf("0x%x", got.zxid)
		p.Row(takenFile{file, format, zxid, got.nodes, got.bytes, took.Seconds()}, file, format, zxid,
			got.nodes, got.bytes)
		return p.Flush()
	}
	c.Say("%s: %d nodes, zxid 0x%x, %d bytes in %v", file, got.nodes, got.zxid, got.bytes,
		took.Round(time.Millisecond))
	if format == "zookeeper" {
		c.Say("to start a ZooKeeper from it, copy it to version-2/snapshot.%x in an empty dataDir",
			got.zxid)
	}
	return nil
}

// fetched is a state that zlock has received, as far as its check has read it.
type fetched struct {
	format string
	zxid   int64
	nodes  int
	bytes  int64
}

// copy() writes the state to w as it arrives, and checks it while it does.
func (f *fetched) copy(w io.Writer, from io.Reader) error {
	check, tee := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		err := f.check(check)
		check.CloseWithError(err)
		checked <- err
	}()
	n, err := io.Copy(io.MultiWriter(w, tee), from)
	f.bytes = n
	tee.CloseWithError(err)
	if e := <-checked; e != nil && (err == nil || errors.Is(err, e)) {
		err = fmt.Errorf("the received data are damaged or incomplete: %w", e)
	}
	return err
}

func (f *fetched) check(r io.Reader) (err error) {
	if f.format == "zlockd" {
		b, err := state.CheckBackup(r)
		if err == nil {
			f.zxid, f.nodes = b.Zxid, b.Nodes
		}
		return err
	}
	s, err := zkfiles.NewSnapshotReader(r)
	if err != nil {
		return err
	}
	for {
		if _, _, err = s.Next(); err != nil {
			break
		}
		f.nodes++
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if s.Digest == nil { // a ZooKeeper may be configured to write no digest
		return errors.New("the snapshot contains no zxid")
	}
	f.zxid = s.Digest.Zxid
	return nil
}

// replaceable() returns an error if zlock must not write to this path: it has a file and `force` is not set,
// or what it has is not a regular file.
func replaceable(path string, force bool) error {
	info, err := os.Stat(path)
	switch {
	case path == "-" || errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return cli.Exitf(call.ExitNo, "nothing was written: %w", err)
	case !info.Mode().IsRegular():
		return cli.Exitf(call.ExitNo, "nothing was written: %s is not a regular file; - writes to "+
			"standard output",
			path)
	case !force:
		return thereAlready(path)
	}
	return nil
}

func thereAlready(path string) error {
	return cli.Exitf(call.ExitNo, "nothing was written: %s is there already; --force replaces it", path)
}

// takenFile is what zlock backup and zlock export -o json print.
type takenFile struct {
	File    string  `json:"file"`
	Format  string  `json:"format"` // zlockd or zookeeper
	Zxid    string  `json:"zxid"`
	Nodes   int     `json:"nodes"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}
