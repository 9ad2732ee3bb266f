package data

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// told is how many of the nodes that it leaves out a command names.
const told = 20

func importCommand() *Command {
	return &Command{
		Name: "import", Args: "--from DIR|FILE --data-dir NEW",
		Does: "make a data directory from a stopped ZooKeeper's data",
		Help: `Reads the newest whole snapshot and every log after it (version 2; also snapshots
compressed by gzip or snappy), checks all of it, and makes a new data directory from it:
nodes with all fields of their stat, ACLs, containers, times to live, quotas and
sequence counters. New zxids are above the last one. The files of the ZooKeeper do not
change. If FROM is one snapshot FILE, import uses that file alone.

Import leaves out ephemeral nodes and lists them, unless --keep-sessions keeps the
sessions: then their clients keep locks and sessions if they connect to zlockd within
their timeout after its start.`,
		Setup: func(fs *pflag.FlagSet) func(*Call) error {
			var o offline.ZooKeeperOptions
			from := fs.String("from", "", "the ZooKeeper's `DIR` (dataDir of its zoo.cfg), or one snapshot file")
			fs.StringVar(&o.LogDir, "log-dir", "", "the ZooKeeper's `DIR` of logs, if its zoo.cfg has "+
				"dataLogDir")
			dataDir := fs.String("data-dir", "", "make this `DIR`, which must be empty or not exist")
			id := fs.Uint32("id", 1, "id of the new directory's server, `N` from 1 to 254")
			keep := fs.Bool("keep-sessions", false, "keep sessions and ephemeral nodes")
			fs.BoolVar(&o.DropTorn, "drop-torn-record", false,
				"leave out an unfinished last log entry, as ZooKeeper does")
			return func(c *Call) error {
				if err := cmp.Or(required("from", *from), required("data-dir", *dataDir), checkID(*id)); err != nil {
					return err
				}
				o.From = *from
				return c.made(*dataDir, startWith(*dataDir, *id), func() (*offline.Made, error) {
					z, err := offline.LoadZooKeeper(o)
					if err != nil {
						return nil, err
					}
					return offline.Import(c.ctx, z, *dataDir, *id, *keep, nowMillis())
				})
			}
		},
	}
}

func checkID(id uint32) error {
	if id < 1 || id > config.MaxID {
		return cli.Usagef("--id %d is not a number from 1 to %d", id, config.MaxID)
	}
	return nil
}

// startWith returns the command line that starts a server on a directory that was just made.
func startWith(dir string, id uint32) string {
	how := "Start it: zlockd --data-dir " + dir
	if id != 1 {
		how += fmt.Sprintf(" --id %d --peers %d=HOST:PORT", id, id)
	}
	return how
}

// made() calls run(), which makes a directory with data. Then it prints what the directory contains, and
// `next`, the next step for the operator.
func (c *Call) made(dir, next string, run func() (*offline.Made, error)) error {
	begun := time.Now()
	m, err := run()
	if err != nil {
		return err
	}
	took := time.Since(begun)
	for _, n := range m.Notes {
		fmt.Fprintf(c.out, "Note: %s\n", n)
	}
	if n := len(m.Left); n > 0 {
		fmt.Fprintf(c.out, "Left out: %d ephemeral nodes (--keep-sessions keeps them)\n", n)
		c.list(m.Left)
	}
	fmt.Fprintf(c.out, "%s: %d nodes, %d sessions, zxid 0x%x, in %v\n%s\n", dir, m.Nodes, m.Sessions, m.Zxid,
		took.Round(time.Millisecond), next)
	m.Left, m.Notes = append([]string{}, m.Left...), append([]string{}, m.Notes...) // nil would be null in JSON
	return c.answer(madeAnswer{c.Name, dir, hexZxid(m.Zxid), m, took.Seconds()})
}

// list() prints the first paths of a list, and how many more there are.
func (c *Call) list(paths []string) {
	n := len(paths)
	for _, p := range paths[:min(n, told)] {
		fmt.Fprintf(c.out, "  %s\n", p)
	}
	if n > told {
		fmt.Fprintf(c.out, "  and %d more\n", n-told)
	}
}

func exportCommand() *Command {
	return &Command{
		Name: "export", Args: "--data-dir DIR --to NEW",
		Does: "make a ZooKeeper's data directory from a stopped server's data, or from a backup",
		Help: `Makes NEW/version-2 with a snapshot, a log and the epoch files, from which a ZooKeeper
3.8 or 3.9 starts, alone or as a server of an ensemble: name NEW as its dataDir. All
fields are exactly those of the nodes, except that the text of /zookeeper/config is
left to ZooKeeper. To export a running server: zlock export FILE.`,
		Setup: func(fs *pflag.FlagSet) func(*Call) error {
			dataDir := fs.String("data-dir", "", "the stopped server's `DIR`, or a backup file")
			to := fs.String("to", "", "make this `DIR`, which must be empty or not exist")
			keep := fs.Bool("keep-sessions", false, "keep sessions and ephemeral nodes")
			return func(c *Call) error {
				if err := cmp.Or(required("data-dir", *dataDir), required("to", *to)); err != nil {
					return err
				}
				return c.made(*to, "Start a ZooKeeper with dataDir="+*to, func() (*offline.Made, error) {
					s, err := offline.ReadState(*dataDir)
					if err != nil {
						return nil, err
					}
					return offline.Export(c.ctx, s, *to, *keep)
				})
			}
		},
	}
}

func verifyCommand() *Command {
	return &Command{
		Name: "verify", Args: "A B", Least: 2, Most: 2, Does: "compare two places node by node",
		Help: `A and B are each one of: a data directory of a stopped zlockd or ZooKeeper, a snapshot
of either, a backup, or a running server as HOST:PORT. Compares all
fields of all nodes; for a running server, those that its protocol shows. Exit code: 0 if
both are equal; 1 if they differ, after the first hundred differences, or if data are
damaged; 2 for a mistake in the command line.`,
		Setup: func(fs *pflag.FlagSet) func(*Call) error {
			ephemerals := fs.Bool("ephemerals", false, "compare ephemeral nodes too")
			logDir := fs.String("log-dir", "", "the ZooKeeper's `DIR` of logs, if its zoo.cfg has dataLogDir")
			auth := fs.String("auth-file", "",
				"`FILE` with a line digest:USER:PASSWORD, for nodes of a running server that not all clients may read")
			return func(c *Call) error { return c.verify(*ephemerals, *logDir, *auth) }
		},
	}
}

func (c *Call) verify(ephemerals bool, logDir, auth string) error {
	var sides [2]*offline.Content
	for i, name := range c.Args {
		var err error
		if isAddress(name) {
			sides[i], err = readRunning(c.ctx, name, auth)
		} else {
			sides[i], err = offline.LoadContent(name, logDir)
		}
		if err != nil {
			return err
		}
	}
	a, b := sides[0], sides[1]
	diffs, ended := offline.Compare(a, b, ephemerals)
	if err := c.answer(verifyAnswer{"verify", len(diffs) == 0, sideOf(a), sideOf(b),
		append([]string{}, diffs...), ended}); err != nil {
		return err
	}
	if n := len(ended); n > 0 {
		fmt.Fprintf(c.out, "%d ephemeral nodes exist on one side only. They do not count as differences, "+
			"because "+
			"such nodes end with their sessions:\n", n)
		c.list(ended)
	}
	for _, d := range diffs {
		fmt.Fprintln(c.out, d)
	}
	if len(diffs) > 0 {
		more := ""
		if len(diffs) == offline.MaxDifferences {
			more = " or more"
		}
		fmt.Fprintf(c.out, "%d%s differences\n", len(diffs), more)
		return cli.Exit(exitDiffer)
	}
	if n := len(b.Nodes); n != len(a.Nodes) {
		fmt.Fprintf(c.out, "equal: A has %d nodes and B has %d; ephemeral nodes were not compared", len(a.Nodes), n)
	} else {
		fmt.Fprintf(c.out, "equal: %d nodes", n)
	}
	fmt.Fprintf(c.out, "; zxid 0x%x and 0x%x\n", a.Zxid, b.Zxid)
	return nil
}

func restoreCommand() *Command {
	return &Command{
		Name: "restore", Args: "FILE --data-dir NEW", Least: 1, Most: 1, Does: "make a data directory " +
			"from a backup",
		Help: `FILE is what zlock backup wrote, or a snapshot of a ZooKeeper. The new directory belongs
to a new cluster of one server: servers of the old cluster cannot join it. The zxid
rises to the time of day, so that fencing tokens grow and no client sees time go back.
All sessions end, and their ephemeral nodes are deleted, unless --keep-sessions keeps
them. To restore a whole cluster, stop its servers, restore to one of them, and add the
others, with empty data directories, as members.`,
		Setup: func(fs *pflag.FlagSet) func(*Call) error {
			dataDir := fs.String("data-dir", "", "make this `DIR`, which must be empty or not exist")
			id := fs.Uint32("id", 1, "id of the new directory's server, `N` from 1 to 254")
			keep := fs.Bool("keep-sessions", false, "keep sessions and ephemeral nodes")
			return func(c *Call) error {
				if err := cmp.Or(required("data-dir", *dataDir), checkID(*id)); err != nil {
					return err
				}
				return c.made(*dataDir, startWith(*dataDir, *id), func() (*offline.Made, error) {
					return offline.Restore(c.ctx, c.Args[0], *dataDir, *id, *keep, nowMillis())
				})
			}
		},
	}
}

func recoverCommand() *Command {
	return &Command{
		Name: "recover", Args: "--data-dir DIR --yes",
		Does: "make a cluster of one from a surviving server, when the majority is gone for good",
		Help: `For a cluster that lost its majority and will not get it back. Shows the most
that can be lost, makes a new cluster from the stopped server's directory, with this server
as the only member, and prints the commands that add the other servers again. Sessions
continue. A directory inside it keeps the old content. If a majority can be started again,
start it instead: then nothing is lost.`,
		Setup: func(fs *pflag.FlagSet) func(*Call) error {
			dataDir := fs.String("data-dir", "", "the survivor's `DIR`")
			yes := fs.Bool("yes", false, "do it; without --yes only show what would be lost")
			return func(c *Call) error {
				if err := required("data-dir", *dataDir); err != nil {
					return err
				}
				return c.recover(*dataDir, *yes)
			}
		},
	}
}

func (c *Call) recover(dir string, yes bool) error {
	if offline.Interrupted(dir) {
		if err := offline.Finish(dir); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "An earlier recover of %s was interrupted; it is finished now. Start the server as "+
			"before.\n", dir)
		return c.answer(recoverAnswer{Command: "recover", Path: dir, Done: true})
	}
	r, err := offline.PlanRecovery(dir)
	if err != nil {
		return err
	}
	r.Tell(c.out)
	answer := recoveryOf(dir, r)
	if !yes {
		if err := c.answer(answer); err != nil {
			return err
		}
		return fmt.Errorf("nothing was changed: give --yes to recover %s", dir)
	}
	m, err := r.Run(c.ctx, nowMillis())
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: new cluster %s, %d nodes, %d sessions, zxid 0x%x\n", dir, m.Cluster, m.Nodes,
		m.Sessions, m.Zxid)
	r.TellNext(c.out)
	answer.Done, answer.New, answer.Nodes, answer.Sessions, answer.Next = true, m.Cluster, m.Nodes, m.Sessions,
		r.Next()
	return c.answer(answer)
}
