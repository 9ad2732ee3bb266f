// Command zlockd-kerberos is zlockd with Kerberos. See docs/reference/kerberos.md.
package main

import (
	"fmt"
	"os"

	"github.com/zlockd/zlockd/cmd/zlockd/daemon"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/server/sasl/kerberos"
)

func main() { os.Exit(daemon.Main(os.Args, mechanism{})) }

// mechanism provides Kerberos to the daemon: New() makes it as the --kerberos flags ask.
type mechanism struct{}

func (mechanism) CheckRules(rules string) error {
	_, err := kerberos.ParseRules(rules)
	return err
}

func (mechanism) New(o daemon.KerberosOptions) (sasl.Mechanism, error) {
	rules, err := kerberos.ParseRules(o.Rules)
	if err != nil {
		return nil, fmt.Errorf("--kerberos-rules: %w", err)
	}
	service, err := kerberos.New(kerberos.Options{
		Keytab: o.Keytab, Principal: o.Principal, Logger: o.Logger,
		Names: kerberos.Names{Rules: rules, RemoveHost: o.RemoveHost, RemoveRealm: o.RemoveRealm},
	})
	if err != nil {
		return nil, fmt.Errorf("--kerberos-keytab: %w", err)
	}
	o.Logger.Info("clients can authenticate with Kerberos", "principal", service.Principal())
	return service, nil
}
