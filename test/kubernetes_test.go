package test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// namesOfClients are the names by which programs in Kubernetes know the servers.
var namesOfClients = []string{"zlockd", "zlockd.default", "zlockd.default.svc", "zlockd-0.zlockd-headless",
	"zlockd.default.svc.cluster.local", "zlockd-0.zlockd-headless.default.svc.cluster.local"}

// kubernetes() follows the manifest in a new directory: it makes the certificates with the commands in the
// manifest's comment. It returns the directory and the flags of the pod.
func kubernetes(t *testing.T, pod, servers string) (dir string, flags []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds zlock: runs without -short")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash, as the image has it")
	}
	objects, text := documents(t, "kubernetes/zlockd.yaml")
	dir = t.TempDir()
	program := filepath.Join(dir, "zlock")
	out, err := exec.Command("go", "build", "-o", program, "../cmd/zlock").CombinedOutput()
	must.OK(t, err, "%s", out)
	make := regexp.MustCompile(`(?s)#   zlock ca init\n.*?#   done\n`).FindString(text)
	must.That(t, make != "", "the comment has no commands for certificates")
	run := func(script string, env ...string) string {
		cmd := exec.Command("bash", "-euc", script)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH")), env...)
		out, err := cmd.CombinedOutput()
		must.OK(t, err, "%s\n%s", script, out)
		return string(out)
	}
	run(strings.ReplaceAll(make, "#   ", ""))
	for _, o := range objects {
		if o["kind"] != "StatefulSet" {
			continue
		}
		for _, c := range at(o, "spec", "template", "spec", "containers").([]any) {
			start := at(c, "command").([]any)[2].(string)
			start = strings.ReplaceAll(start, "exec zlockd ", `printf '%s\n' `)
			start = strings.ReplaceAll(start, "/tls/", dir+"/")
			flags = strings.Fields(run(start, "HOSTNAME="+pod, "SERVERS="+servers))
		}
	}
	return dir, flags
}

// valueOf returns the value of a flag.
func valueOf(flags []string, flag string) string {
	for i, f := range flags {
		if f == flag {
			return flags[i+1]
		}
	}
	return ""
}

// A pod starts once its certificates exist, and knows the other servers of the cluster. A joining pod also
// knows itself.
func TestPodsOfKubernetes(t *testing.T) {
	const two = "1=zlockd-0.zlockd-headless:2888,2=zlockd-1.zlockd-headless:2888"
	const three = two + ",3=zlockd-2.zlockd-headless:2888"
	for _, c := range []struct{ pod, servers, id, peers string }{
		{"zlockd-0", "3", "1", three},
		{"zlockd-2", "3", "3", three},
		{"zlockd-2", "2", "3", three},
		{"zlockd-0", "2", "1", two},
	} {
		t.Run(c.pod+" of "+c.servers, func(t *testing.T) {
			_, flags := kubernetes(t, c.pod, c.servers)
			expect.Equal(t, valueOf(flags, "--id"), c.id, "its id is")
			expect.Equal(t, valueOf(flags, "--peers"), c.peers, "it knows")
			for _, f := range []string{"peer-tls-ca", "peer-tls-cert", "peer-tls-key", "tls-cert", "tls-key"} {
				expect.OK(t, expect.Err(os.Stat(valueOf(flags, "--"+f))), "the file of --%s", f)
			}
		})
	}
}

// served() starts a server with the certificate of the first pod, and returns its address and authority.
func served(t *testing.T) (addr, ca string) {
	t.Helper()
	dir, flags := kubernetes(t, "zlockd-0", "3")
	addr = must.Get(cluster.FreePorts(1))(t)[0]
	cmd := exec.Command(must.Get(cluster.Binary())(t), "--dev", "--client-addr", "off", "--admin-addr", "off",
		"--secure-client-addr", addr, "--tls-cert", valueOf(flags, "--tls-cert"),
		"--tls-key", valueOf(flags, "--tls-key"))
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return addr, filepath.Join(dir, "ca.pem")
}

// Go's client verifies the server by exactly the names that clients use.
func TestClientsVerifyTheServersOfKubernetes(t *testing.T) {
	addr, ca := served(t)
	roots := x509.NewCertPool()
	must.That(t, roots.AppendCertsFromPEM(must.Get(os.ReadFile(ca))(t)), "ca.pem has no certificate")
	for _, name := range append(namesOfClients, "elsewhere") {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			if name == "elsewhere" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			c, err := zk.Dial(ctx, addr, zk.Options{TLS: &tls.Config{RootCAs: roots, ServerName: name}})
			if err == nil {
				defer c.Close(t.Context())
			}
			expect.Equal(t, err == nil, name != "elsewhere", "a client has a session (%v)", err)
		})
	}
}
