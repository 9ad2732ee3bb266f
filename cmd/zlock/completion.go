package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func completionCommand() *command {
	shells := []string{"bash", "zsh", "fish"}
	return &command{
		name: "completion", args: "bash|zsh|fish", subs: shells,
		does: "write the completion script of a shell",
		help: `For bash:  source <(zlock completion bash)
For zsh:   zlock completion zsh > "${fpath[1]}/_zlock"
For fish:  zlock completion fish > ~/.config/fish/completions/zlock.fish`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			return func(c *call) error {
				if err := c.operands(1, 1); err != nil {
					return err
				}
				script, ok := completionScripts[c.args[0]]
				if !ok {
					return usagef("no completion for %q; there is one for %s", c.args[0], strings.Join(shells, ", "))
				}
				_, err := fmt.Fprint(c.stdout, script)
				return err
			}
		},
	}
}

// The scripts ask zlock itself for the candidates, so they always know its commands. Each
// candidate is a word and, after a tab, its meaning.
var completionScripts = map[string]string{
	"bash": `_zlock() {
	local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]}
	local i
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi
			return
		fi
	done
	COMPREPLY=($(zlock __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
	if [[ ${#COMPREPLY[@]} -eq 1 && ( ${COMPREPLY[0]} == */ || ${COMPREPLY[0]} == *= ) ]]; then compopt -o nospace; fi
}
complete -F _zlock zlock
`,
	"zsh": `#compdef zlock
_zlock() {
	local -a found
	local line i=${words[(i)--]}
	if (( i < CURRENT )); then
		shift $i words; (( CURRENT -= i )); _normal; return
	fi
	for line in "${(@f)$(zlock __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	_describe zlock found
}
if [[ $funcstack[1] == _zlock ]]; then _zlock "$@"; else compdef _zlock zlock; fi
`,
	"fish": `function __zlock_complete
	set -l words (commandline -opc) (commandline -ct)
	zlock __complete $words[2..-1] 2>/dev/null
end
function __zlock_in_command
	contains -- -- (commandline -opc)
end
complete -c zlock -f -n 'not __zlock_in_command' -a '(__zlock_complete)'
complete -c zlock -n __zlock_in_command -xa '(__fish_complete_subcommand --fcs-skip=2)'
`,
}

// complete writes the candidates for the last word. On any error it writes nothing.
func (a *app) complete(words []string) {
	for _, cand := range a.candidates(words) {
		fmt.Fprintf(a.stdout, "%s\t%s\n", cand.word, cand.means)
	}
}

type candidate struct{ word, means string }

func (a *app) candidates(words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	if len(words) == 1 {
		var found []candidate
		for _, c := range commands() {
			if !c.hidden && strings.HasPrefix(c.name, last) {
				found = append(found, candidate{c.name, c.does})
			}
		}
		return found
	}
	c := findCommand(words[0])
	if c == nil || c.hidden || slices.Contains(words[:len(words)-1], "--") {
		return nil
	}
	fs, _ := c.flagSet()
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(name, "--") {
		return flagValues(fs.Lookup(name[2:]), value, name+"=")
	}
	if f := pendingFlag(fs, words[1:len(words)-1]); f != nil {
		return flagValues(f, last, "")
	}
	if strings.HasPrefix(last, "-") {
		return flagNames(fs, last)
	}
	return a.operandsFor(c, fs, words[1:len(words)-1], last)
}

// pendingFlag returns the flag whose value is the next word.
func pendingFlag(fs *pflag.FlagSet, words []string) *pflag.Flag {
	if len(words) == 0 {
		return nil
	}
	w := words[len(words)-1]
	var f *pflag.Flag
	switch {
	case strings.HasPrefix(w, "--") && len(w) > 2 && !strings.Contains(w, "="):
		f = fs.Lookup(w[2:])
	case len(w) > 1 && w[0] == '-' && w[1] != '-':
		f = fs.ShorthandLookup(w[len(w)-1:])
	}
	if f == nil || f.NoOptDefVal != "" {
		return nil
	}
	return f
}

// flagValues lists the values of a flag that has a fixed set.
func flagValues(f *pflag.Flag, prefix, before string) []candidate {
	if f == nil {
		return nil
	}
	values := []string{}
	switch v := f.Value.(type) {
	case *cli.Choice:
		values = v.Values
	default:
		if f.Name == "on-lost" {
			values = []string{"term", "kill", "warn"}
		}
	}
	var found []candidate
	for _, v := range values {
		if strings.HasPrefix(v, prefix) {
			found = append(found, candidate{before + v, f.Usage})
		}
	}
	return found
}

func flagNames(fs *pflag.FlagSet, prefix string) []candidate {
	var found []candidate
	fs.VisitAll(func(f *pflag.Flag) {
		if name := "--" + f.Name; strings.HasPrefix(name, prefix) {
			_, usage := pflag.UnquoteUsage(f)
			found = append(found, candidate{name, usage})
		}
	})
	return found
}

// operandsFor lists the command's words, or paths of the server.
func (a *app) operandsFor(c *command, fs *pflag.FlagSet, before []string, last string) []candidate {
	var found []candidate
	_ = fs.Parse(before)
	if len(c.subs) > 0 && len(fs.Args()) == 0 {
		for _, s := range c.subs {
			if strings.HasPrefix(s, last) {
				found = append(found, candidate{s, ""})
			}
		}
		return found
	}
	if !c.paths || last != "" && last[0] != '/' {
		return nil
	}
	dir := last[:strings.LastIndexByte(last, '/')+1]
	for _, name := range a.namesBelow(fs, strings.TrimSuffix(dir, "/")) {
		if word := "/" + strings.TrimPrefix(dir+name, "/"); strings.HasPrefix(word, last) && plainWord(word) {
			found = append(found, candidate{word, ""})
		}
	}
	return found
}

// plainWord reports whether every shell takes the word unquoted. The shells insert candidates
// without quotes, and any client of the servers may have chosen the name.
func plainWord(word string) bool {
	return !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+,:@%", r)
	})
}

// completionPatience is short: the user has just pressed the tab key.
const completionPatience = 300 * time.Millisecond

// namesBelow lists a node's children if the server answers soon.
func (a *app) namesBelow(fs *pflag.FlagSet, dir string) []string {
	conn := &connectFlags{}
	conn.servers, _ = fs.GetString("servers")
	conn.chroot, _ = fs.GetString("chroot")
	servers, chroot, err := conn.address(a.getenv)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	found := make(chan []string, 1)
	go func() {
		cfg, err := conn.tlsConfig()
		if err != nil {
			return
		}
		c, err := zk.Dial(ctx, servers, zk.Options{TLS: cfg})
		if err != nil {
			return
		}
		defer func() { _ = c.Close(ctx) }()
		path := chroot + dir
		if path == "" {
			path = "/"
		}
		names, _, _ := c.Children(ctx, path)
		slices.Sort(names)
		found <- names
	}()
	select {
	case names := <-found:
		return names
	case <-ctx.Done():
		return nil
	}
}
