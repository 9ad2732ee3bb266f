package manage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Restore is zlock restore.
func Restore() *call.Command {
	return &call.Command{
		Name: "restore", Args: "FILE", Least: 1, Most: 1,
		Does:   "replace everything in a running zlockd cluster with a backup",
		Prints: []any{restoredFile{}},
		Help: `FILE is the output of zlock backup. zlock and the server check it. It reaches the servers
through the log, and replaces the state of all servers at once: every client is
disconnected and then finds the state of the backup, with a zxid above every zxid that a
client has seen. Sessions and their locks end, unless --keep-sessions keeps those of the
backup. A session that is still alive keeps the locks that it has not released since the
backup. A ticket that was given back since then holds its lock again for up to its ttl:
end it with zlock end-session. The members stay.

All writes since the backup are lost, so you must type the name of the cluster, or give it
with --yes NAME. A refused or failed restore changes nothing. Needs the password of
the servers' --super-digest in --auth-file. Exit code: 0, 1 if the servers refuse or the
file is damaged, 120 if none answers.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			f := addStateFlags(fs)
			keep := fs.Bool("keep-sessions", false,
				"keep the sessions that are in the backup, and their ephemeral nodes")
			yes := fs.String("yes", "", "do not ask if `NAME` is the cluster's name, or at least its first "+
				"8 letters")
			format := call.AddFormat(fs)
			return func(c *call.Call) error { return restore(c, f, *keep, *yes, *format) }
		},
	}
}

// shortName is how many characters of the cluster's name the user must type at least to confirm.
const shortName = 8

func restore(c *call.Call, f *connect.AdminFlags, keep bool, yes, format string) error {
	file, err := os.Open(c.Args[0])
	if err != nil {
		return cli.Exitf(call.ExitNo, "%v", err)
	}
	defer file.Close()
	b, err := state.CheckBackup(file)
	if err != nil {
		return cli.Exitf(call.ExitNo, "%s is not a complete backup: %v; use another backup", c.Args[0], err)
	}
	return connect.WithAdmin(c, f, func(ctx context.Context, admin connect.Admin) error {
		var now struct {
			Cluster string `json:"cluster"`
		}
		if err := admin.Ask(ctx, "/members", nil, &now); err != nil {
			return err
		}
		if len(now.Cluster) < shortName {
			return cli.Exitf(call.ExitNo, "the server runs a release that cannot restore a running cluster")
		}
		if err := confirm(ctx, c, b, call.Clean(now.Cluster), keep, yes); err != nil {
			return err
		}
		return putBack(ctx, c, admin, file, keep, format)
	})
}

// confirm() asks the user to type the name of the cluster whose state the backup will replace.
func confirm(ctx context.Context, c *call.Call, b *state.Backup, cluster string, keep bool,
	yes string) error {
	said := yes
	if said == "" {
		ends := "All sessions end"
		if keep {
			ends = fmt.Sprintf("All sessions end, except the %d of the backup", b.Sessions)
		}
		from := "this cluster"
		if b.Cluster != cluster {
			from = "another cluster, " + call.Clean(b.Cluster)
		}
		if !call.IsTerminal(c.Stdin) {
			return cli.Usagef("standard input is not a terminal: give the cluster's name with --yes %s",
				cluster[:shortName])
		}
		fmt.Fprintf(c.Stderr, "%s: %d nodes, zxid 0x%x, from %s.\nIt replaces everything that cluster %s "+
			"holds. %s.\nType the name of the cluster to continue (%s): ",
			c.Args[0], b.Nodes, b.Zxid, from, cluster, ends, cluster[:shortName])
		typed := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(c.Stdin).ReadString('\n')
			typed <- strings.TrimSpace(line)
		}()
		select {
		case said = <-typed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(said) < shortName || !strings.HasPrefix(cluster, said) {
		return cli.Exitf(call.ExitNo, "nothing was changed: the cluster at this address has another name, %s",
			cluster)
	}
	return nil
}

// putBack sends the backup to the server, and prints the result.
func putBack(ctx context.Context, c *call.Call, admin connect.Admin, file *os.File, keep bool,
	format string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	begun := time.Now()
	var made struct {
		Zxid     string `json:"last_zxid"`
		Nodes    int    `json:"nodes"`
		Sessions int    `json:"sessions"`
		Ended    int    `json:"ended"`
	}
	path := fmt.Sprintf("/commands/restore?keep-sessions=%v", keep)
	switch err := admin.Do(ctx, http.MethodPost, path, file, &made); {
	case cli.HasCode(err, call.ExitNo):
		return err
	case err != nil:
		c.Say("the restore may still take place: compare the server with the backup by 'zlockd verify'")
		return err
	}
	took := time.Since(begun)
	if format == call.Table {
		c.Say("restored: %d nodes, zxid %s, in %v; %d sessions ended, %d continue", made.Nodes, made.Zxid,
			took.Round(time.Millisecond), made.Ended, made.Sessions)
		return nil
	}
	p := c.Printer(format)
	p.Row(restoredFile{c.Args[0], made.Zxid, made.Nodes, made.Sessions, made.Ended, took.Seconds()},
		c.Args[0], made.Zxid, made.Nodes, made.Sessions, made.Ended)
	return p.Flush()
}

// restoredFile is what zlock restore -o json prints.
type restoredFile struct {
	File     string  `json:"file"`
	Zxid     string  `json:"zxid"`
	Nodes    int     `json:"nodes"`
	Sessions int     `json:"sessions"`
	Ended    int     `json:"ended"`
	Seconds  float64 `json:"seconds"`
}

// addStateFlags adds the flags of a command that transfers the whole state: those of the admin listener, with
// a long timeout.
func addStateFlags(fs *pflag.FlagSet) *connect.AdminFlags {
	f := connect.AddAdminFlags(fs, true)
	f.Timeout = 10 * time.Minute
	fs.Lookup("timeout").DefValue = "10m"
	return f
}
