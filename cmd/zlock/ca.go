package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func caCommand() *command {
	return &command{
		Name: "ca", Args: "init, server ID --host NAME, or client NAME", Least: 1, Most: 2,
		Words: []string{"init", "server", "client"},
		Does:  "make certificates for the servers and clients of a cluster",
		Help: `init makes an authority: ca.pem, which every machine needs, and ca.key, which stays here.
server makes peerID.pem and peerID.key for zlockd's --peer-tls-*, and serverID.pem and
serverID.key for its --tls-* and --admin-tls-*. client makes NAME.pem and NAME.key.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			a := &authority{}
			fs.StringVar(&a.dir, "dir", ".", "`DIR` of the files")
			fs.StringSliceVar(&a.hosts, "host", nil,
				"`NAME` or address by which clients know the server; may be repeated")
			fs.IntVar(&a.days, "days", 825, "the certificate ends after `N` days; an authority after ten years")
			return func(c *call) error { return c.ca(a) }
		},
	}
}

// authority is the authority of a cluster, in a directory.
type authority struct {
	dir   string
	hosts []string
	days  int
}

const authorityLife = 10 * 365 // days

func (c *call) ca(a *authority) error {
	what := c.Args[0]
	c.Args = c.Args[1:]
	if (len(c.Args) == 0) != (what == "init") {
		return cli.Usagef("want init, server ID or client NAME")
	}
	var made []string
	sign := func(name string, cert *x509.Certificate) error {
		made = append(made, name+".pem", name+".key")
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
		if len(a.hosts) == 0 {
			return cli.Usagef("by which names or addresses do clients know server %d? Give --host", id)
		}
		name := fmt.Sprintf("zlockd-%d", id)
		both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		err = sign(fmt.Sprintf("peer%d", id), &x509.Certificate{Subject: pkix.Name{CommonName: name},
			DNSNames: []string{name}, ExtKeyUsage: both}) // a peer has this one name
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
		err = sign(c.Args[0], &x509.Certificate{Subject: pkix.Name{CommonName: c.Args[0]},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	default:
		return cli.Usagef("%q is not init, server or client", what)
	}
	if err != nil {
		return cli.Exitf(exitFailed, "%v", err)
	}
	for _, name := range made {
		fmt.Fprintln(c.stdout, filepath.Join(a.dir, name))
	}
	return nil
}

// sign makes a key and its certificate, signed by the authority in the directory; that of the
// authority itself signs itself. It overwrites no key.
func (a *authority) sign(name string, cert *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	parent, signer := cert, any(key)
	if !cert.IsCA {
		ca, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "ca.pem"), filepath.Join(a.dir, "ca.key"))
		if err != nil {
			return fmt.Errorf("%w; 'zlock ca init' makes the authority, --dir names its directory", err)
		}
		parent, signer = ca.Leaf, ca.PrivateKey
		cert.KeyUsage = x509.KeyUsageDigitalSignature
	}
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it ends the process where it would fail
	serial[0] &= 0x7f
	cert.SerialNumber = new(big.Int).SetBytes(serial)
	// The clock of another machine may be behind.
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(0, 0, a.days)
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		return err
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
	f, err := os.OpenFile(filepath.Join(a.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("%w; nothing is overwritten: move the old files away to make new ones", err)
	}
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
