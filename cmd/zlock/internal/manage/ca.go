package manage

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// CA is zlock ca.
func CA() *call.Command {
	return &call.Command{
		Name: "ca", Args: "init, server ID --host NAME, or client NAME", Least: 1, Most: 2,
		Words: []string{"init", "server", "client"},
		Does:  "make certificates for the servers and clients of a cluster",
		Help: `init makes an authority: ca.pem, which every machine needs, and ca.key, which stays here.
server makes peerID.pem and peerID.key for zlockd's --peer-tls-*, and serverID.pem and
serverID.key for its --tls-* and --admin-tls-*. client makes NAME.pem and NAME.key.
With --renew the same command makes the certificates again, for the keys and names that
they have (or the names of --host); servers read files that change. The certificates
that a renewed authority signed before stay valid.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			a := &authority{}
			fs.StringVar(&a.dir, "dir", ".", "`DIR` of the files")
			fs.StringSliceVar(&a.hosts, "host", nil,
				"`NAME` or address by which clients know the server; may be repeated")
			fs.IntVar(&a.days, "days", 825, "the certificate ends after `N` days; an authority after ten years")
			fs.BoolVar(&a.renew, "renew", false, "make the certificates again, for the existing keys")
			return func(c *call.Call) error { return certify(c, a) }
		},
	}
}

// authority is the certificate authority of a cluster, in a directory.
type authority struct {
	dir   string
	hosts []string
	days  int
	renew bool
	say   func(format string, args ...any)
	made  []string // the files made so far, to remove after an error
}

const (
	authorityLife = 10 * 365 // days
	mostDays      = 100 * 365
)

// otherFiles matches names that the files of authorities, servers and peers have. A client must not get such
// a name: its certificate would replace the server's, and the server would not start.
var otherFiles = regexp.MustCompile(`^(ca|(server|peer)[0-9]+)$`)

func certify(c *call.Call, a *authority) error {
	a.say = c.Say
	if a.days < 1 || a.days > mostDays {
		return cli.Usagef("--days %d is not a number from 1 to %d", a.days, mostDays)
	}
	what := c.Args[0]
	c.Args = c.Args[1:]
	if (len(c.Args) == 0) != (what == "init") {
		return cli.Usagef("want init, server ID or client NAME")
	}
	var names []string
	sign := func(name string, cert *x509.Certificate) error {
		if names = append(names, name+".pem"); !a.renew {
			names = append(names, name+".key")
		}
		return a.sign(name, cert)
	}
	var err error
	switch what {
	case "init":
		a.days = authorityLife
		err = sign("ca", &x509.Certificate{Subject: pkix.Name{CommonName: "zlockd authority"}, IsCA: true,
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	case "server":
		id, bad := strconv.Atoi(c.Args[0])
		if bad != nil || id < 1 || id > 254 {
			return cli.Usagef("%q is not an id from 1 to 254", c.Args[0])
		}
		if len(a.hosts) == 0 && a.renew {
			if a.hosts, err = a.hostsOf(fmt.Sprintf("server%d", id)); err != nil {
				return cli.Exitf(call.ExitFailed, "%v", err)
			}
		}
		if len(a.hosts) == 0 {
			return cli.Usagef("give --host with the names or addresses by which clients know server %d", id)
		}
		name := fmt.Sprintf("zlockd-%d", id)
		both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		err = sign(fmt.Sprintf("peer%d", id), &x509.Certificate{Subject: pkix.Name{CommonName: name},
			DNSNames: []string{name}, ExtKeyUsage: both}) // peers check this name, so it needs no host
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: a.hosts[0]}, ExtKeyUsage: both[:1]}
		for _, h := range a.hosts {
			if ip := net.ParseIP(h); ip != nil {
				cert.IPAddresses = append(cert.IPAddresses, ip)
			} else {
				cert.DNSNames = append(cert.DNSNames, h)
			}
		}
		if err == nil {
			err = sign(fmt.Sprintf("server%d", id), cert)
		}
	case "client":
		if filepath.Base(c.Args[0]) != c.Args[0] {
			return cli.Usagef("%q is not the name of a file", c.Args[0])
		}
		if otherFiles.MatchString(strings.ToLower(c.Args[0])) { // in lower case: some file systems ignore the case
			return cli.Usagef("%s.pem is not the certificate of a client: give the client another name",
				c.Args[0])
		}
		err = sign(c.Args[0], &x509.Certificate{Subject: pkix.Name{CommonName: c.Args[0]},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	default:
		return cli.Usagef("%q is not init, server or client", what)
	}
	if err != nil {
		for _, file := range a.made { // otherwise the same command would fail again, because these files exist
			err = errors.Join(err, os.Remove(file))
		}
		return cli.Exitf(call.ExitFailed, "%v", err)
	}
	for _, name := range names {
		fmt.Fprintln(c.Stdout, filepath.Join(a.dir, name))
	}
	return nil
}

// hostsOf returns the names and addresses for which an existing certificate is valid.
func (a *authority) hostsOf(name string) ([]string, error) {
	pair, err := a.load(name)
	if err != nil {
		return nil, err
	}
	hosts := pair.Leaf.DNSNames
	for _, ip := range pair.Leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	if i := slices.Index(hosts, pair.Leaf.Subject.CommonName); i > 0 {
		hosts[0], hosts[i] = hosts[i], hosts[0] // the name in the subject comes first, as when it was made
	}
	return hosts, nil
}

// load() reads a certificate and its key.
func (a *authority) load(name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key"))
}

// keyFor makes a key, or with --renew reads the existing key.
func (a *authority) keyFor(name string) (crypto.Signer, error) {
	if !a.renew {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	pair, err := a.load(name)
	if err != nil {
		return nil, err
	}
	return pair.PrivateKey.(crypto.Signer), nil // LoadX509KeyPair returns only signers
}

// sign() makes a certificate. It makes a key, too, unless the key's file exists. The authority in the
// directory signs the certificate; an authority signs its own.
func (a *authority) sign(name string, cert *x509.Certificate) error {
	key, err := a.keyFor(name)
	if err != nil {
		return err
	}
	parent, signer := cert, any(key)
	if !cert.IsCA {
		ca, err := a.load("ca")
		if err != nil {
			return fmt.Errorf("%w; make the authority with 'zlock ca init', or name its directory with --dir",
				err)
		}
		parent, signer = ca.Leaf, ca.PrivateKey
		cert.KeyUsage = x509.KeyUsageDigitalSignature
	}
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f
	cert.SerialNumber = new(big.Int).SetBytes(serial)
	// Valid since an hour ago: the clock of another machine may be behind.
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(0, 0, a.days)
	if !cert.IsCA && cert.NotAfter.After(parent.NotAfter) { // after its authority's end it would be useless
		if cert.NotAfter = parent.NotAfter; time.Until(cert.NotAfter) <= 0 {
			return fmt.Errorf("the authority ended on %s; 'zlock ca init --renew' makes it again, "+
				"and every machine needs the new ca.pem", cert.NotAfter.UTC().Format(time.DateOnly))
		}
		a.say("%s.pem ends with its authority, on %s: 'zlock ca init --renew' makes the authority again, "+
			"and every machine needs the new ca.pem", name, cert.NotAfter.UTC().Format(time.DateOnly))
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if a.renew {
		file := filepath.Join(a.dir, name+".pem")
		err := vfs.Fill(file, func(w io.Writer) error {
			return pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: der})
		})
		return errors.Join(err, os.Chmod(file, 0o644))
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.write(name+".key", "PRIVATE KEY", secret, 0o600); err != nil {
		return err
	}
	return a.write(name+".pem", "CERTIFICATE", der, 0o644)
}

func (a *authority) write(name, kind string, der []byte, mode os.FileMode) error {
	file := filepath.Join(a.dir, name)
	err := vfs.FillNew(file, mode, func(w io.Writer) error {
		return pem.Encode(w, &pem.Block{Type: kind, Bytes: der})
	})
	switch {
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("%s: %w; nothing was overwritten: give --renew to make certificates again, or "+
			"move the old files away", file, os.ErrExist)
	case err == nil:
		a.made = append(a.made, file)
	}
	return err
}
