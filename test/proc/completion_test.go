package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// shells are scripts whose arguments are command lines. For each command line a script prints the last word,
// as the shell completes it.
var shells = map[string]string{
	"bash": `source <(zlock completion bash); source <(zlockd completion bash)
compopt() { COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")); }
_command_offset() { compopt; }
for line; do
	COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _${COMP_WORDS[0]} >/dev/null
	echo "${COMPREPLY[*]}"
done`,
	"zsh": `mkdir f; zlock completion zsh >f/_zlock; zlockd completion zsh >f/_zlockd
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; fpath=($PWD/f $fpath); autoload -U compinit; compinit -u -D
show() { zle complete-word; print -r -- "GOT""<$BUFFER>"; BUFFER= }; zle -N show; bindkey "^I" show; print READY$((1))'
zpty -r z out '*READY1*'
for line in "$@"; do
	zpty -n -w z "$line"$'\t'
	zpty -r z out '*GOT<*>*'
	print -r -- "${${(z)${${out##*GOT<}%%>*}}[-1]}"
done
zpty -d z`,
	"fish": `zlock completion fish | source; zlockd completion fish | source
for line in $argv
	complete -C $line | cut -f 1
end`,
}

// The completion scripts of zlock and zlockd work in the shells that they are for.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	path := filepath.Dir(cluster.Zlock(t)) + ":" + filepath.Dir(cluster.Build(t)) + ":" + os.Getenv("PATH")
	lines := []string{"zlock mem", "zlock run --nonb", "zlockd --log-format j", "zlockd --config only-f",
		"zlock run --nonblock /x -- cat only-f"}
	const want = "member --nonblock json only-file only-file"
	for shell, script := range shells {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				must.Equal(t, os.Getenv("ZLTEST_REQUIRE_STOCK"), "", "%v", err)
				t.Skip(err)
			}
			dir := t.TempDir()
			must.OK(t, os.WriteFile(filepath.Join(dir, "only-file"), nil, 0o600))
			must.OK(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o600))
			cmd := exec.Command(program, append([]string{"script"}, lines...)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path, "HOME="+dir, "TERM=dumb")
			timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
			defer timer.Stop()
			out, err := cmd.CombinedOutput()
			got := strings.Join(strings.Fields(string(out)), " ")
			expect.OK(t, err)
			expect.Equal(t, got, want)
		})
	}
}
