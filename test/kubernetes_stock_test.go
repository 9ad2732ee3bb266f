//go:build stock

package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Java's client verifies the server by exactly the names that clients use.
func TestJavaVerifiesTheServersOfKubernetes(t *testing.T) {
	const jars = "/usr/share/java/"
	classes := jars + "zookeeper.jar:" + jars + "slf4j-simple.jar"
	for _, part := range []string{"buffer", "codec", "common", "handler", "resolver", "transport",
		"transport-native-epoll", "transport-native-unix-common"} {
		classes += ":" + jars + "netty-" + part + ".jar"
	}
	for _, jar := range strings.Split(classes, ":") {
		if _, err := os.Stat(jar); err != nil {
			must.That(t, os.Getenv("ZLTEST_REQUIRE_STOCK") == "", "%v", err)
			t.Skip("needs ZooKeeper's classes and netty: ", err)
		}
	}
	addr, ca := served(t)
	_, port, err := net.SplitHostPort(addr)
	must.OK(t, err)
	for _, name := range []string{namesOfClients[0], namesOfClients[3], "elsewhere"} {
		t.Run(name, func(t *testing.T) {
			hosts := filepath.Join(t.TempDir(), "hosts")
			must.OK(t, os.WriteFile(hosts, []byte("127.0.0.1 "+name+"\n"), 0o600))
			out, _ := exec.Command("java", "-cp", classes, "-Djdk.net.hosts.file="+hosts,
				"-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
				"-Dzookeeper.client.secure=true", "-Dzookeeper.ssl.trustStore.location="+ca,
				"-Dzookeeper.ssl.trustStore.type=PEM", "org.apache.zookeeper.ZooKeeperMain",
				"-waitforconnection", "-timeout", "10000", "-server", name+":"+port, "ls", "/").CombinedOutput()
			want := "[zookeeper]"
			if name == "elsewhere" {
				want = "Failed to verify hostname: elsewhere"
			}
			expect.Has(t, string(out), want, "Java says")
		})
	}
}
