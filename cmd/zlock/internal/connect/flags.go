package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// Flags are the options of every command that talks to the servers.
type Flags struct {
	Servers, Chroot string
	SessionTimeout  time.Duration
	ConnectTimeout  time.Duration
	Timeout         time.Duration // limit for the whole command; 0: no limit
	authFile        string
	TLSFiles
	verbose     int
	Quiet       bool
	Credentials []zk.Auth
	Margin      time.Duration // commands set it, and it has no flag
}

// AddFlags adds the options of a command that opens a session.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{SessionTimeout: zk.DefaultTimeout, ConnectTimeout: 10 * time.Second}
	fs.StringVarP(&f.Servers, "servers", "S", "",
		"`HOST:PORT,...[/CHROOT]` of the servers (ZLOCK_SERVERS; default 127.0.0.1:2181)")
	fs.StringVar(&f.Chroot, "chroot", "", "`PATH` of the subtree that zlock uses (ZLOCK_CHROOT)")
	call.AddDuration(fs, &f.SessionTimeout, "session-timeout", "",
		"the server ends the session after this much silence")
	call.AddDuration(fs, &f.ConnectTimeout, "connect-timeout", "",
		"give up when no session is usable after this time")
	fs.StringVar(&f.authFile, "auth-file", "",
		"`FILE` with one SCHEME:SECRET per line, such as digest:user:password")
	fs.BoolVar(&f.TLS, "tls", false, "use TLS (implied by the options below)")
	fs.StringVar(&f.Cert, "tls-cert", "", "`FILE` with the client's certificate")
	fs.StringVar(&f.Key, "tls-key", "", "`FILE` with the private key of --tls-cert")
	fs.StringVar(&f.CA, "tls-ca", "",
		"trust only the authorities in `FILE` to sign the servers' certificates (default: the system's)")
	fs.StringVar(&f.ServerName, "tls-server-name", "",
		"`NAME` that the servers' certificates must contain (default: each server's own)")
	fs.CountVarP(&f.verbose, "verbose", "v", "``show progress; given twice: show every detail")
	fs.BoolVarP(&f.Quiet, "quiet", "q", false, "print only errors")
	return f
}

// AddAskFlags adds the options of a command that only asks a question. It gives up after --timeout, even if
// it has no session yet.
func AddAskFlags(fs *pflag.FlagSet) *Flags {
	f := AddFlags(fs)
	f.Timeout = AnswerTimeout
	call.AddDuration(fs, &f.Timeout, "timeout", "w", "give up after this time")
	return f
}

// Address returns the servers and the chroot; flags take precedence over the environment. A
// chroot in -S counts as a flag.
func (f *Flags) Address(getenv func(string) string) (servers, chroot string, err error) {
	servers, chroot = f.Servers, f.Chroot
	if chroot == "" && !strings.Contains(servers, "/") {
		chroot = getenv("ZLOCK_CHROOT")
	}
	servers = cmp.Or(servers, getenv("ZLOCK_SERVERS"), "127.0.0.1:2181")
	if i := strings.IndexByte(servers, '/'); i >= 0 {
		if chroot != "" && chroot != servers[i:] {
			return "", "", cli.Usagef("two chroots: %s and %s", servers[i:], chroot)
		}
		servers, chroot = servers[:i], servers[i:]
	}
	chroot = strings.TrimRight(chroot, "/")
	if chroot != "" && chroot[0] != '/' {
		return "", "", cli.Usagef("--chroot must begin with a slash")
	}
	return servers, chroot, nil
}

// ready() checks the times and reads the files that the flags name.
func (f *Flags) ready(a *call.App) (*tls.Config, error) {
	if f.SessionTimeout <= 0 || f.ConnectTimeout <= 0 {
		return nil, cli.Usagef("--session-timeout and --connect-timeout must be positive")
	}
	if err := f.readAuth(a); err != nil {
		return nil, err
	}
	return f.TLSConfig()
}

// Options turns the flags into options of the client.
func (f *Flags) Options(a *call.App) ([]client.Option, error) {
	cfg, err := f.ready(a)
	if err != nil {
		return nil, err
	}
	opts := []client.Option{client.WithSessionTimeout(f.SessionTimeout), client.WithName("zlock")}
	if f.Margin > 0 {
		opts = append(opts, client.WithMargin(f.Margin))
	}
	for _, c := range f.Credentials {
		opts = append(opts, client.WithAuth(c.Scheme, string(c.Secret)))
	}
	if cfg != nil {
		opts = append(opts, client.WithTLS(cfg))
	}
	return append(opts, client.WithLogger(f.logger(a))), nil
}

func (f *Flags) readAuth(a *call.App) error {
	if f.authFile == "" || f.Credentials != nil {
		return nil
	}
	list, exposed, err := cli.ReadAuth(f.authFile)
	if err != nil {
		return cli.Usagef("--auth-file: %v", err)
	}
	if exposed && !f.Quiet {
		a.Say("%s can be read by other users", f.authFile)
	}
	f.Credentials = list
	return nil
}

// TLSFiles say how a connection uses TLS. If no field is set, the connection does not use TLS.
type TLSFiles struct {
	TLS           bool
	Cert, Key, CA string
	ServerName    string
	prefix        string // the names of the flags begin with it; empty: with "tls-"
}

// TLSConfig reads the files and returns the configuration. It returns nil if the connection uses no TLS.
func (f *TLSFiles) TLSConfig() (*tls.Config, error) {
	if !f.TLS && f.Cert == "" && f.Key == "" && f.CA == "" && f.ServerName == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	prefix := cmp.Or(f.prefix, "tls-")
	if (f.Cert == "") != (f.Key == "") {
		return nil, cli.Usagef("--%scert and --%skey go together: give both", prefix, prefix)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, cli.Usagef("--%scert: %v", prefix, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, cli.Usagef("--%sca: %v", prefix, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("--%sca: %s holds no certificate", prefix, f.CA)
		}
	}
	return cfg, nil
}

// LayoutOption returns the client's option for the layout with this name. It returns no option if the name is
// empty.
func LayoutOption(name string) []client.Option {
	l, err := recipe.ParseLayout(name)
	if err != nil {
		return nil // empty: the flag accepts no other unknown name
	}
	return []client.Option{client.WithLayout(l)}
}
