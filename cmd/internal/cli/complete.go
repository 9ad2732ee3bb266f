package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// completionCommand prints a completion script.
func (p *Program[C]) completionCommand() *Command[C] {
	shells := []string{"bash", "zsh", "fish"}
	return &Command[C]{
		Name: "completion", Args: "bash|zsh|fish", Words: shells, Least: 1, Most: 1,
		Does: "write the completion script of a shell",
		Help: strings.ReplaceAll(`For bash:  source <(PROGRAM completion bash)
For zsh:   PROGRAM completion zsh > "${fpath[1]}/_PROGRAM"
For fish:  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish`, "PROGRAM", p.Name),
		own: func(c *Call) error {
			script, ok := completionScripts[c.Args[0]]
			if !ok {
				return Usagef("there is no completion for %q: want one of "+
					"%s", c.Args[0], strings.Join(shells, ", "))
			}
			_, err := fmt.Fprint(p.Stdout, strings.ReplaceAll(script, "PROGRAM", p.Name))
			return err
		},
	}
}

// The scripts for completion. A script asks the program itself for the candidates, so it always offers the
// commands that the program has now. Each candidate is a word and, after a tab, its meaning. If the program
// returns an error, the shell completes the name of a file instead.
var completionScripts = map[string]string{
	"bash": `_PROGRAM() {
	local IFS=$'\n' i found
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi
			return
		fi
	done
	if ! found=$(PROGRAM __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); then
		COMPREPLY=() && compopt -o default && return
	fi
	COMPREPLY=($(cut -f1 <<<"$found"))
	if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}
complete -F _PROGRAM PROGRAM
`,
	"zsh": `#compdef PROGRAM
_PROGRAM() {
	local -a found
	local line all i=${words[(i)--]}
	if (( i < CURRENT )); then
		shift $i words; (( CURRENT -= i )); _normal; return
	fi
	all=$(PROGRAM __complete "${(@)words[2,CURRENT]}" 2>/dev/null) || { _files; return; }
	for line in "${(@f)all}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	_describe PROGRAM found
}
if [[ $funcstack[1] == _PROGRAM ]]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
`,
	"fish": `function __PROGRAM_complete
	set -l words (commandline -opc) (commandline -ct)
	PROGRAM __complete $words[2..-1] 2>/dev/null
	or __fish_complete_path (commandline -ct)
end
function __PROGRAM_in_command
	contains -- -- (commandline -opc)
end
function __PROGRAM_complete_command
	set -l words (commandline -opc) (commandline -ct)
	set -l command $words[(math (contains -i -- -- $words) + 1)..-1]
	complete -C "$command"
end
complete -c PROGRAM -f -n 'not __PROGRAM_in_command' -a '(__PROGRAM_complete)'
complete -c PROGRAM -n __PROGRAM_in_command -xa '(__PROGRAM_complete_command)'
`,
}

// complete() writes the candidates for the last word. It returns false if that word is the name of a file.
func (p *Program[C]) complete(words []string) bool {
	list, ok := p.candidates(words)
	for _, c := range list {
		fmt.Fprintf(p.Stdout, "%s\t%s\n", c.Word, c.Means)
	}
	return ok
}

func (p *Program[C]) candidates(words []string) (list []Meaning, ok bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := strings.TrimPrefix(words[len(words)-1], "=") // in --flag=value, bash passes = as a word of its own
	before := slices.DeleteFunc(slices.Clone(words[:len(words)-1]), func(w string) bool { return w == "=" })
	fs, c := p.flags(), (*Command[C])(nil)
	if len(before) > 0 {
		if c = p.find(before[0]); c != nil {
			fs, _ = p.flagSet(c)
			before = before[1:]
		} else if p.Plain == nil {
			return nil, true
		}
	}
	switch name, value, assigned := strings.Cut(last, "="); {
	case slices.Contains(before, "--"), c != nil && c.Hidden:
		return nil, true
	case assigned && strings.HasPrefix(name, "--"):
		return flagValues(fs.Lookup(name[2:]), value, name+"=")
	case pendingFlag(fs, before) != nil:
		return flagValues(pendingFlag(fs, before), last, "")
	case strings.HasPrefix(last, "-"):
		fs.VisitAll(func(f *pflag.Flag) {
			if name := "--" + f.Name; strings.HasPrefix(name, last) && !f.Hidden {
				_, does := pflag.UnquoteUsage(f)
				list = append(list, Meaning{name, does})
			}
		})
	case c == nil && len(before) == 0:
		for _, c := range p.Shown() {
			if strings.HasPrefix(c.Name, last) {
				list = append(list, Meaning{c.Name, c.Does})
			}
		}
	case c != nil:
		return p.operands(c, fs, before, last)
	}
	return list, true
}

// pendingFlag returns the flag that still needs its value, which is the word that the user completes.
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

// flagValues lists the values of a flag, if its value is one of a fixed set. `ok` is false if the value is
// the name of a file.
func flagValues(f *pflag.Flag, prefix, before string) (list []Meaning, ok bool) {
	if f == nil {
		return nil, true
	}
	kind, does := pflag.UnquoteUsage(f)
	if kind == "FILE" || kind == "DIR" {
		return nil, before != ""
	}
	values := strings.Split(kind, "|")
	if f.Name == "on-lost" {
		values = []string{"term", "kill", "warn"}
	}
	for _, v := range values {
		if len(values) > 1 && strings.HasPrefix(v, prefix) {
			list = append(list, Meaning{before + v, does})
		}
	}
	return list, true
}

// operands() lists the possible operands: the command's words, or paths on the server.
func (p *Program[C]) operands(c *Command[C], fs *pflag.FlagSet, before []string, last string) (
	list []Meaning, ok bool) {
	_ = fs.Parse(before) // ignore mistakes: the command reports them when it runs
	if len(fs.Args()) == 0 {
		for _, w := range c.Words {
			if strings.HasPrefix(w, last) {
				list = append(list, Meaning{Word: w})
			}
		}
	}
	switch {
	case len(list) > 0, !c.Paths && c.Most == 0:
		return list, true
	case !c.Paths:
		return nil, p.Names != nil && !strings.HasPrefix(c.Args, "FILE")
	case last != "" && last[0] != '/':
		return nil, true
	}
	dir := last[:strings.LastIndexByte(last, '/')+1]
	for _, name := range p.Names(fs, strings.TrimSuffix(dir, "/")) {
		if word := "/" + strings.TrimPrefix(dir+name, "/"); strings.HasPrefix(word, last) && plainWord(word) {
			list = append(list, Meaning{Word: word})
		}
	}
	return list, true
}

// plainWord reports whether a word needs no quotes in any shell. The shells insert candidates without quotes,
// and the name of a node may come from any client of the servers.
func plainWord(word string) bool {
	return !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+,:@%", r)
	})
}
