//go:build stock

package proc

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
)

// TestZooKeepersToolsReadExports lets the programs behind zkSnapShotToolkit.sh
// and zkTxnLogToolkit.sh read what is exported.
func TestZooKeepersToolsReadExports(t *testing.T) {
	cluster.RequireZooKeeper(t)
	const nodes = 3000
	tmp := t.TempDir()
	zoo, ours, back := filepath.Join(tmp, "zoo"), filepath.Join(tmp, "ours"), filepath.Join(tmp, "back")
	fill(t, zoo, nodes)
	out, err := zlockd(t, "import", "--from", zoo, "--data-dir", ours)
	output(t, out, err)
	out, err = zlockd(t, "export", "--data-dir", ours, "--to", back)
	output(t, out, err)
	tool := func(class, file string) string {
		t.Helper()
		var jars []string
		for _, name := range []string{"zookeeper", "zookeeper-jute", "slf4j-api", "commons-cli", "snappy-java"} {
			jars = append(jars, "/usr/share/java/"+name+".jar")
		}
		b, err := exec.Command("java", "-cp", strings.Join(jars, ":"), "org.apache.zookeeper.server."+class,
			filepath.Join(back, "version-2", file)).CombinedOutput()
		return output(t, string(b), err)
	}
	text := tool("SnapshotFormatter", fmt.Sprintf("snapshot.%x", nodes))
	if n := strings.Count(text, "cZxid = "); n != nodes+4 ||
		!strings.Contains(text, fmt.Sprintf("Last zxid: 0x%x", nodes)) {
		t.Errorf("%d nodes of %d; %s", n, nodes+4, text[max(0, len(text)-200):])
	}
	if text := tool("persistence.TxnLogToolkit", fmt.Sprintf("log.%x", nodes)); !strings.Contains(text,
		"EOF reached after 1 txns") {
		t.Error(text)
	}
}
