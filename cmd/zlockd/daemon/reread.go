package daemon

import (
	"log/slog"
	"slices"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
)

// setLevel sets the level of the log; loggers that exist already use it, too.
func (d *daemon) setLevel(s *settings.Settings) {
	var l slog.Level
	_ = l.UnmarshalText([]byte(s.LogLevel)) // the settings have been checked, so the level is known
	d.level.Set(l)
}

// `live` lists the flags that reread can change while the server runs.
var live = []string{"log-level", "4lw-whitelist", "max-client-cnxns", "max-cnxns", "sasl-users",
	"ticket-tokens", "kerberos-keytab", "kerberos-principal", "kerberos-rules", "kerberos-remove-host",
	"kerberos-remove-realm"}

// reread reads the configuration again at each SIGHUP. It logs which changes are in force now and which need
// a restart. If the configuration has a mistake, nothing changes. Certificates need no SIGHUP: the server
// notices by itself that their files have changed.
func (d *daemon) reread(args []string, inForce *settings.Settings, p process, n *notifier, log *slog.Logger,
	done <-chan struct{}) {
	for {
		select {
		case <-d.hangups:
		case <-done:
			return
		}
		n.reloading()
		took, restart, err := d.rereadOnce(args, inForce, p, log)
		n.reloaded()
		if err != nil {
			log.Error("SIGHUP: the configuration has mistakes, nothing was changed", "err", err)
			continue
		}
		log.Info("SIGHUP: the configuration was read again", "took_effect", took, "needs_a_restart", restart)
	}
}

func (d *daemon) rereadOnce(args []string, inForce *settings.Settings, p process, log *slog.Logger) (
	took, restart []string, err error) {
	fresh, err := settings.Read(args, d.kerberos)
	if err != nil {
		return nil, nil, err
	}
	users, err := p.Change(fresh, log)
	if err != nil {
		return nil, nil, err
	}
	d.setLevel(fresh)
	fresh.Flags.VisitAll(func(f *pflag.Flag) {
		old := inForce.Flags.Lookup(f.Name)
		isLive := slices.Contains(live, f.Name)
		switch changed := old.Value.String() != f.Value.String(); {
		case isLive && (changed || users && f.Name == "sasl-users"):
			took = append(took, f.Name)
			_ = old.Value.Set(f.Value.String()) // cannot fail: f, the same flag, already has this value
		case changed:
			restart = append(restart, f.Name)
		}
	})
	return took, restart, nil
}
