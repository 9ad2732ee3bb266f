package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// envPrefix begins the environment variable of a flag: ZLOCKD_DATA_DIR sets --data-dir.
const envPrefix = "ZLOCKD_"

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setFromEnv sets from the environment the flags that the command line leaves out. An empty
// variable counts as unset.
func setFromEnv(all *pflag.FlagSet, env func(string) (string, bool)) error {
	var errs []error
	all.VisitAll(func(f *pflag.Flag) {
		value, ok := env(envName(f.Name))
		if !ok || value == "" || f.Changed || f.Name == "help" || f.Name == "version" || f.Name == "check-ready" {
			return
		}
		if err := all.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", envName(f.Name),
				cli.FlagError(all, err, OtherNames)))
		}
	})
	return errors.Join(errs...)
}

// unknownVariables records environment variables that begin with the prefix of flags but name no flag. It
// skips the variables that Kubernetes sets for a service named zlockd.
func (s *Settings) unknownVariables(environ []string) {
	known := map[string]bool{}
	s.Flags.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		flag, ours := strings.CutPrefix(name, envPrefix)
		if !ours || known[name] || strings.HasPrefix(flag, "SERVICE_") || flag == "PORT" ||
			strings.HasPrefix(flag, "PORT_") {
			continue
		}
		why := "there is no such setting"
		if near := cli.NearFlag(s.Flags, strings.ToLower(strings.ReplaceAll(flag, "_", "-")),
			OtherNames); near != "" {
			why += ": did you mean " + envName(near) + "?"
		}
		s.Note(name, "%s", why)
	}
}
