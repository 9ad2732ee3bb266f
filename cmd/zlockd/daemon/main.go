// Package daemon is the program zlockd: it runs a server, with the settings that package settings has read,
// until a signal comes. It also runs the commands that need no server. zlockd-kerberos is the same program
// with Kerberos.
package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/data"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
)

// Main runs zlockd with its arguments, the name of the program first, and returns the exit code. If
// `kerberos` is nil, it refuses the options of Kerberos.
func Main(args []string, kerberos Kerberos) int {
	relaxTimers(args) // first of all: it may execute the program again, and that would lose signals
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	// Do not end when the reader of the output goes away.
	signal.Ignore(syscall.SIGPIPE)
	stderr := newLogQueue(os.Stderr, logQueueBytes)
	d := &daemon{stdout: os.Stdout, stderr: stderr, signals: signals, hangups: hangups, kerberos: kerberos,
		start: startServer}
	code := d.program().Main(args[1:])
	stderr.flush(logFlushTime)
	return code
}

// serveWith runs a server with its arguments and returns the exit code.
func (d *daemon) serveWith(args []string) int {
	p := d.program()
	s, err := settings.Read(args, d.kerberos)
	if err != nil {
		return p.Report("", cli.Mistake(settings.WithSurroundings(err, s)))
	}
	switch {
	case s.ShowHelp:
		p.Overview(d.stdout)
		return exitOK
	case s.ShowVersion:
		return p.Main([]string{"version"})
	case s.CheckReady:
		return d.checkReady(s)
	}
	d.setLevel(s)
	log := newLogger(d.stderr, &d.level, s.LogFormat)
	if len(s.Peers) > 1 { // name the server in each line, as operators read several servers' logs together
		log = log.With("server", s.ID)
	}
	if q, ok := d.stderr.(*logQueue); ok {
		q.tellBy(log)
		s.LogLost = q.lost
	}
	for _, n := range s.Notes {
		if n.Key == "" {
			log.Warn(n.Why)
			continue
		}
		log.Warn("no effect: "+n.Why, "file", s.Config, "key", n.Key)
	}
	return d.serve(args, s, log)
}

// serve() runs the server until a signal comes or the server fails.
func (d *daemon) serve(args []string, s *settings.Settings, log *slog.Logger) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager := newNotifier(os.Getenv, log)
	manager.tell("STATUS=starting")

	// Start in another goroutine, because the start may wait for other servers, and a signal must end that wait.
	type started struct {
		p   process
		err error
	}
	starting := make(chan started, 1)
	go func() {
		p, err := d.start(ctx, s, log)
		starting <- started{p, err}
	}()
	var p process
	select {
	case r := <-starting:
		if r.err != nil {
			return d.program().Report("", settings.WithSurroundings(settings.Explain(r.err, s), s))
		}
		p = r.p
	case sig := <-d.signals:
		log.Info("stopping before the start was complete", "signal", sig.String())
		cancel()
		select {
		case r := <-starting:
			if r.err == nil {
				return d.stop(r.p, log)
			}
			return exitOK
		case <-d.signals:
			return exitAtOnce
		case <-time.After(data.StopTime):
			return exitFailed
		}
	}

	go releaseIdle(ctx)
	go d.reread(args, s, p, manager, log, ctx.Done())
	go func() {
		if line, err := p.Ready(ctx); err == nil {
			line.print(d.stdout)
			manager.ready(line)
			manager.follow(ctx, p.Line)
		}
	}()
	select {
	case sig := <-d.signals:
		log.Info("stopping", "signal", sig.String())
		manager.stopping()
		return d.stop(p, log)
	case <-p.Failed():
		log.Error("the server has stopped by itself")
		return exitFailed
	}
}

// stop() shuts the server down. It gives up at a second signal, or after data.StopTime.
func (d *daemon) stop(p process, log *slog.Logger) int {
	ctx, cancel := context.WithTimeout(context.Background(), data.StopTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Close(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			log.Error("the shutdown did not complete", "err", err)
			return exitFailed
		}
		log.Info("stopped")
		return exitOK
	case <-d.signals:
		log.Warn("stopped at once by a second signal")
		return exitAtOnce
	}
}
