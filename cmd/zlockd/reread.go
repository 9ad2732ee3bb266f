package main

import (
	"log/slog"

	"github.com/spf13/pflag"
)

// setLevel sets the level of the log from now on.
func (d *daemon) setLevel(s *settings) {
	var l slog.Level
	_ = l.UnmarshalText([]byte(s.logLevel)) // check refused unknown levels
	d.level.Set(l)
}

// reread reads the configuration again at each SIGHUP, and logs what took effect and what
// needs a restart. A hang-up never ends the server, and a configuration with a mistake changes
// nothing. Certificates need no signal: the server sees that their files change.
func (d *daemon) reread(args []string, inForce *settings, log *slog.Logger, done <-chan struct{}) {
	for {
		select {
		case <-d.hangups:
		case <-done:
			return
		}
		fresh, err := readSettings(args)
		if err != nil {
			log.Error("SIGHUP: the configuration has mistakes, nothing was changed", "err", err)
			continue
		}
		var took, restart []string
		fresh.flags.VisitAll(func(f *pflag.Flag) {
			old := inForce.flags.Lookup(f.Name)
			switch {
			case old.Value.String() == f.Value.String():
			case f.Name == "log-level":
				took = append(took, f.Name)
				_ = old.Value.Set(f.Value.String())
				d.setLevel(fresh)
			default:
				restart = append(restart, f.Name)
			}
		})
		log.Info("SIGHUP: the configuration was read again", "took_effect", took, "needs_a_restart", restart)
	}
}
