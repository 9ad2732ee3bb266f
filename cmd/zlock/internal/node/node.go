// Package node has the verbs of zlock node and zlock sh. Verbs that ZooKeeper's zkCli also has answer in
// zkCli's words.
//
// Programs use a [Shell]: [Shell.Do] runs one verb, [Shell.Lines] the verbs of a script, and [Shell.Prompt]
// the verbs that a person types.
package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/view/answer"
)

// Shell runs verbs on one session.
type Shell struct {
	Conn     *zk.Conn
	In       io.Reader
	Out, Err io.Writer
	Format   string // call.Table (zkCli's lines), call.Plain (a name or value in each line) or call.JSON
	Terminal bool   // a person reads Out and types on In
	Version  string

	mu      sync.Mutex // guards Out and Err, which watches share with the verbs
	lines   *bufio.Reader
	ask     func(question string) (string, error) // while the prompt runs: asks a person
	history []string
	quit    bool
	unsaid  error          // the first error of a write to Out: some of the output is lost
	watched map[string]int // how many watches each path has
	told    map[*zk.Watch]bool
}

// ErrUnknown is the error for a word that is not a verb.
var ErrUnknown = errors.New("Command not found") //nolint:staticcheck // zkCli's text

// refused is an error with the text that zkCli prints for it.
type refused struct{ text string }

func (r refused) Error() string { return r.text }

// verb is a row of the table of verbs.
type verb struct {
	name        string
	usage       string // operands and options, for the help
	does        string
	least, most int // numbers of operands; `most` is -1 if there is no limit
	flags       func(*verbCall)
	run         func(context.Context, *verbCall) error
}

// verbCall is what the user asks of a verb: its operands, and its options.
type verbCall struct {
	*Shell
	*pflag.FlagSet
	args                                            []string
	stat, watch, deep, ephemeral, sequential, boxed bool
	yes, force                                      bool
	version                                         int32
	ttl                                             int64
	file, mode                                      string
}

// otherNames maps words that are no verbs here to verbs: other names in zkCli, and words that people try.
var otherNames = map[string]string{
	"getacl": "getAcl", "acl": "getAcl", "setacl": "setAcl", "rm": "delete", "addWatch": "watch",
	"addwatch": "watch", "exit": "quit", "dir": "ls", "cat": "get", "exists": "stat", "auth": "addauth",
}

// notTaken has the verbs of zkCli that do not exist here. The text for each says what to do instead.
var notTaken = map[string]string{
	"setquota":     "write /zookeeper/quota with zkCli.sh of a ZooKeeper",
	"listquota":    "read /zookeeper/quota: zlock node ls -R /zookeeper/quota",
	"delquota":     "use zkCli.sh of a ZooKeeper",
	"reconfig":     "zlock member changes the members",
	"config":       "get /zookeeper/config shows it, and zlock member list",
	"connect":      "begin another zlock sh with --servers",
	"close":        "quit ends the session",
	"redo":         "use the arrow keys",
	"printwatches": "events of watches are always printed",
}

// Verbs returns the names of the verbs.
func Verbs() (names []string) {
	for _, v := range table() {
		names = append(names, v.name)
	}
	return names
}

// Help describes the verbs, one on each line.
func Help() string {
	var b strings.Builder
	for _, v := range table() {
		fmt.Fprintf(&b, "%s\n    %s\n", strings.TrimSpace(v.name+" "+v.usage), v.does)
	}
	return b.String()
}

func find(name string) *verb {
	if other, ok := otherNames[name]; ok {
		name = other
	}
	for _, v := range table() {
		if v.name == name {
			return &v
		}
	}
	return nil
}

// Do runs one verb. The error is a message for people; it is ErrUnknown if the word is not a verb.
func (s *Shell) Do(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return nil
	}
	v := find(words[0])
	if v == nil {
		if instead, ok := notTaken[words[0]]; ok {
			return fmt.Errorf("%w: %s is not supported here: %s", ErrUnknown, words[0], instead)
		}
		return fmt.Errorf("%w: Command not found %s", ErrUnknown, answer.Visible(words[0]))
	}
	c := &verbCall{Shell: s, FlagSet: pflag.NewFlagSet(v.name, pflag.ContinueOnError), version: -1}
	c.SetOutput(io.Discard)
	if v.flags != nil {
		v.flags(c)
	}
	if err := c.Parse(words[1:]); err != nil {
		return cli.Usagef("%v (options of zlock come before the verb): %s", err,
			strings.TrimSpace(v.name+" "+v.usage))
	}
	c.args = c.Args()
	if words[0] == "rm" && c.deep {
		v = find("deleteall")
	}
	if len(c.args) < v.least || v.most >= 0 && len(c.args) > v.most {
		return cli.Usagef("%s", strings.TrimSpace(v.name+" "+v.usage))
	}
	if strings.Contains(v.usage, "path") && len(c.args) > 0 {
		if err := checkPath(c.args[0]); err != nil {
			return err
		}
	}
	err := inWords(v.run(ctx, c))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.unsaid
	}
	return err
}

// checkPath refuses a text that is not a valid path. Its errors are those of ZooKeeper's client.
func checkPath(p string) error {
	switch {
	case p == "":
		return refused{"Path length must be > 0"}
	case p[0] != '/':
		return refused{"Path must start with / character"}
	case p == "/":
		return nil
	case strings.HasSuffix(p, "/"):
		return refused{"Path must not end with / character"}
	}
	at := 0
	for i, name := range strings.Split(p, "/") {
		why := ""
		switch {
		case i > 0 && name == "":
			why = "empty node name specified"
		case name == "." || name == "..":
			why, at = "relative paths not allowed", at+len(name)-1
		}
		if why != "" {
			return refused{fmt.Sprintf("Invalid path string \"%s\" caused by %s @%d", answer.Visible(p), why,
				at)}
		}
		at += len(name) + 1
	}
	return nil
}

// inWords turns a server's refusal into the message that zkCli prints for it.
func inWords(err error) error {
	e, ok := errors.AsType[*zk.Error](err)
	if !ok {
		return err
	}
	path := answer.Visible(e.Path)
	switch e.Code {
	case jute.NoNode:
		return refused{"Node does not exist: " + path}
	case jute.NodeExists:
		return refused{"Node already exists: " + path}
	case jute.NotEmpty:
		return refused{"Node not empty: " + path}
	case jute.NoChildrenForEphemerals:
		return refused{"Ephemerals cannot have children: " + path}
	case jute.BadVersion:
		return refused{"version No is not valid : " + path}
	case jute.NoAuth:
		return noAuth(e.Path)
	case jute.InvalidACL:
		return refused{"Acl is not valid : " + path}
	case jute.BadArguments:
		return refused{"Arguments are not valid : " + path}
	}
	return refused{fmt.Sprintf("%v for %s", e.Code, path)}
}

// print() writes lines to Out. It holds the lock, because watches may write at the same time.
func (s *Shell) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintf(s.Out, format+"\n", args...); err != nil {
		s.unsaid = err
	}
}

// tell() writes to Err what is not part of an answer.
func (s *Shell) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Err, format+"\n", args...)
}

func (s *Shell) json(object any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cli.WriteJSON(s.Out, object)
}

// confirm() asks a person, and reports whether the answer is yes.
func (s *Shell) confirm(question string) bool {
	ask := s.ask
	if ask == nil {
		ask = func(question string) (string, error) {
			fmt.Fprint(s.Err, question)
			return s.input().ReadString('\n')
		}
	}
	line, _ := ask(question)
	return strings.EqualFold(strings.TrimSpace(line), "y")
}

// children() returns the sorted names of a node's children.
func (s *Shell) children(ctx context.Context, path string) ([]string, zk.Stat, error) {
	names, st, err := s.Conn.Children(ctx, path)
	sort.Strings(names)
	return names, st, err
}

func noAuth(p string) error { return refused{"Insufficient permission : " + answer.Visible(p)} }
