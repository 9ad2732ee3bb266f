package zkreal

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config describes a server. The zero Config is a standalone server as it is
// without configuration, with every four-letter word allowed.
type Config struct {
	TickTime          time.Duration // 0: 2 s
	MinSessionTimeout time.Duration // 0: two ticks
	MaxSessionTimeout time.Duration // 0: twenty ticks
	TTL               bool          // nodes with a time to live (extendedTypesEnabled)
	EnforceQuota      bool          // hard quotas are enforced
	Reconfig          bool          // reconfig is allowed
	ReadOnly          bool          // serves reads without a quorum, with local sessions
	Super             string        // "user:password" of the super user; "" for none
	ContainerInterval time.Duration // sweep of containers and TTL nodes; 0: one minute
	NoFsync           bool          // do not force the log to disk (only behaviour is of interest)
	Replicated        bool          // one server, but run as an ensemble of one

	// Lines are further lines of the configuration file.
	Lines []string
	// JVM replaces the default flags of the Java machine, which are those of
	// a small server with a fast start. A benchmark gives its own.
	JVM []string
}

// Digest returns the identity that the credential "user:password" proves, as
// it stands in ACLs.
func Digest(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// jvmFlags returns the flags of the Java machine.
func (c *Config) jvmFlags() []string {
	flags := c.JVM
	if flags == nil {
		flags = []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	}
	flags = slices.Clone(flags)
	if c.Super != "" {
		flags = append(flags, "-Dzookeeper.DigestAuthenticationProvider.superDigest="+Digest(c.Super))
	}
	if c.ContainerInterval > 0 { // the one property without the prefix
		flags = append(flags, fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", c.ContainerInterval.Milliseconds()))
	}
	for _, k := range slices.Sorted(maps.Keys(c.properties())) {
		flags = append(flags, "-Dzookeeper."+k+"="+c.properties()[k])
	}
	return flags
}

// properties are settings that ZooKeeper reads from system properties.
func (c *Config) properties() map[string]string {
	p := map[string]string{
		"admin.enableServer":     "false",
		"4lw.commands.whitelist": "*",
		"extendedTypesEnabled":   fmt.Sprint(c.TTL),
		"enforceQuota":           fmt.Sprint(c.EnforceQuota),
		"forceSync":              "yes",
	}
	if c.NoFsync {
		p["forceSync"] = "no"
	}
	return p
}

// file returns the text of the configuration file, without the lines that
// name the members of an ensemble.
func (c *Config) file(dataDir string) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	tick := c.TickTime
	if tick == 0 {
		tick = 2 * time.Second
	}
	line("tickTime", tick.Milliseconds())
	line("initLimit", 20)
	line("syncLimit", 10)
	line("dataDir", dataDir)
	line("maxClientCnxns", 0)
	line("reconfigEnabled", c.Reconfig)
	if c.MinSessionTimeout > 0 {
		line("minSessionTimeout", c.MinSessionTimeout.Milliseconds())
	}
	if c.MaxSessionTimeout > 0 {
		line("maxSessionTimeout", c.MaxSessionTimeout.Milliseconds())
	}
	if c.ReadOnly {
		line("localSessionsEnabled", true)
	}
	for _, l := range c.Lines {
		b.WriteString(l + "\n")
	}
	return b.String()
}
