package daemon

import (
	"io"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/data"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
)

// program() describes the command line of zlockd.
func (d *daemon) program() *cli.Program[*data.Call] {
	return &cli.Program[*data.Call]{
		Name: "zlockd", Does: "a lock server that speaks the ZooKeeper protocol",
		See:      "zlockd.conf(5), zlock(1)",
		Synopsis: []string{"[OPTIONS]", "COMMAND [OPTIONS] …"},
		About: `zlockd serves clients of ZooKeeper, and is made for their locks. It runs alone, or as one
of a cluster of servers that replicate all data. Without a COMMAND it runs a server.`,
		Examples: `  zlockd                        a durable single server, data in ./zlockd-data
  zlockd --dev                  a server in memory, for development and tests
  zlockd --dev --client-addr 127.0.0.1:0 --admin-addr off
                                the same on a free port, named on stdout once ready
  zlockd --id 1 --client-addr :2181 --data-dir /var/lib/zlockd \
         --peers 1=lock1:2888,2=lock2:2888,3=lock3:2888 \
         --peer-tls-cert peer.pem --peer-tls-key peer.key --peer-tls-ca ca.pem
                                one of three servers
  zlockd --config zoo.cfg       with the configuration of a ZooKeeper
  zlockd check --config zoo.cfg report all mistakes in it, and start nothing
`,
		Notes: `Once the server serves clients, it prints its addresses in one line on stdout:
  zlockd ready client=ADDR peer=ADDR admin=ADDR mode=MODE version=VERSION
Every flag can be given as an environment variable: ZLOCKD_DATA_DIR is --data-dir.
The command line takes precedence over the environment, and the environment over --config.
The log goes to stderr. SIGTERM or SIGINT shuts the server down; a second one stops it at once.
`,
		Exits: []cli.Meaning{
			{Word: "0", Means: "the shutdown was complete; for a command: done"},
			{Word: "1", Means: "failed to start, or had to stop; for the verify command: A and B differ"},
			{Word: "2", Means: "wrong flags or configuration"},
			{Word: "3", Means: "stopped at once by a second signal"},
		},
		Groups:     func() []cli.Group { return settings.Groups(new(settings.Settings)) },
		Commands:   append([]*data.Command{d.checkCommand()}, data.Commands()...),
		OtherFlags: settings.OtherNames,
		Details:    settings.Details,
		Run: func(c *cli.Call, run func(*data.Call) error) error {
			return run(&data.Call{Call: c, Stdout: d.stdout, Signals: d.signals})
		},
		Plain: d.serveWith,
		Pages: map[string]func(io.Writer){
			"zlockd.8":      func(w io.Writer) { d.program().Manual(w) },
			"zlockd.conf.5": settings.ConfigPage,
		},
		Usage:  exitUsage,
		Failed: exitFailed,
		Stdout: d.stdout, Stderr: d.stderr,
	}
}
