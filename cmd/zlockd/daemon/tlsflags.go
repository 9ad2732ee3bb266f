package daemon

import (
	"fmt"

	"github.com/spf13/pflag"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// tlsFlags are the files that a port's TLS needs, and what its certificate must be.
type tlsFlags struct {
	tlsfiles.Names
	name string // the DNS name that the certificate must have; empty: any
}

// declare declares the three flags; cert and ca say what the certificate and the authority are for.
func (t *tlsFlags) declare(f *pflag.FlagSet, flag, cert, ca string) {
	t.Flag = flag
	f.StringVar(&t.Cert, flag+"-cert", "", cert+", PEM `FILE`, read again when it changes")
	f.StringVar(&t.Key, flag+"-key", "", "its key, PEM `FILE` that only the server may read")
	f.StringVar(&t.CA, flag+"-ca", "", ca+", PEM `FILE`")
}

// tlsFlags returns the files of the ports for clients, for peers, for the admin, for the metrics and for
// tickets.
func (s *settings) tlsFlags() [5]*tlsFlags {
	all := [...]*tlsFlags{&s.clientTLS, &s.peerTLS, &s.adminTLS, &s.metricsTLS, &s.ticketTLS}
	for _, t := range all {
		t.CRL = s.tlsCRL
	}
	s.peerTLS.name = fmt.Sprintf("zlockd-%d", s.ID)
	return all
}
