package settings

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// TLSFlags are the files that a port's TLS needs.
type TLSFlags struct{ tlsfiles.Names }

// declare declares the three flags; cert and ca say what the certificate and the authority are for.
func (t *TLSFlags) declare(f *pflag.FlagSet, flag, cert, ca string) {
	t.Flag = flag
	f.StringVar(&t.Cert, flag+"-cert", "", cert+", PEM `FILE`, read again when it changes")
	f.StringVar(&t.Key, flag+"-key", "", "its key, PEM `FILE` that only the server may read")
	f.StringVar(&t.CA, flag+"-ca", "", ca+", PEM `FILE`")
}

// TLSFlags returns the files of the ports for clients, for peers, for the admin, for the metrics and for
// tickets.
func (s *Settings) TLSFlags() [5]*TLSFlags {
	all := [...]*TLSFlags{&s.clientFiles, &s.peerFiles, &s.AdminFiles, &s.metricsFiles, &s.ticketFiles}
	for _, t := range all {
		t.CRL = s.tlsCRL
	}
	s.peerFiles.Peer = fmt.Sprintf("zlockd-%d", s.ID)
	return all
}
