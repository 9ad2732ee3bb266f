//go:build stock

package identity

import (
	"encoding/hex"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// nameOf is a Java program. It reads subjects and prints the text of each; both are in hexadecimal digits.
const nameOf = `
import java.io.*; import java.util.*; import javax.security.auth.x500.X500Principal;
public class NameOf {
	public static void main(String[] args) throws Exception {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = in.readLine()) != null; ) {
			String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
			System.out.println(HexFormat.of().formatHex(name.getBytes("UTF-8")));
		}
	}
}`

func TestSubjectsAreJavas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "NameOf.java")
	must.OK(t, os.WriteFile(file, []byte(nameOf), 0o600))
	var list [][]byte
	for _, x := range subjects {
		list = append(list, subject(t, x.parts...))
	}
	for r := rand.New(rand.NewPCG(3, 4)); len(list) < len(subjects)+1000; {
		list = append(list, madeUp(t, r))
	}
	var input strings.Builder
	for _, der := range list {
		input.WriteString(hex.EncodeToString(der) + "\n")
	}
	java := exec.Command("java", file)
	java.Stdin, java.Stderr = strings.NewReader(input.String()), os.Stderr
	lines := strings.Split(string(must.Get(java.Output())(t)), "\n")
	must.Equal(t, len(lines), len(list)+1, "lines of Java")
	for i, der := range list {
		want := string(must.Get(hex.DecodeString(lines[i]))(t))
		expect.Equal(t, must.Get(Subject(der))(t), want, "subject %x", der)
	}
}
