package budget

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/script"
)

// TestAccounts runs testdata/*.txt. A block of a script has commands, a line ----, the output of the commands,
// and an empty line. A line with # is a comment. The addresses a, b, ... have connections a1, a2, ...
// The output also tells what became of the connections that wait, and when. Time passes only by the command
// `sleep`.
func TestAccounts(t *testing.T) {
	script.Each(t, "testdata/*.txt", func(t *testing.T, file string) {
		synctest.Test(t, func(t *testing.T) {
			s := &scene{t: t, stop: func() {}}
			script.Play(t, file, s.block)
			s.stop()
		})
	})
}

// scene is a server with the accounts and connections of a script.
type scene struct {
	t        *testing.T
	start    time.Time
	shares   *Shares
	memory   *Memory
	accounts map[string]*Account
	conns    map[string]*conn
	loans    map[string]*Loan // by address and portion
	portions map[string]*Portion
	stop     func()   // ends all waits
	told     []string // what became of connections since the last command
}

// conn is a connection of a script.
type conn struct {
	from   *Account
	number uint64
	over   atomic.Bool
	closed func(ends.Reason)
}

func (c *conn) Account() *Account { return c.from }
func (c *conn) Number() uint64    { return c.number }
func (c *conn) IsOpen() bool      { return !c.over.Load() }
func (c *conn) Alive()            {}
func (c *conn) CountWatches()     {}

func (c *conn) Close(why ends.Reason) {
	if !c.over.Swap(true) {
		c.closed(why)
	}
}

func (s *scene) now() time.Duration { return time.Since(s.start) }

// account returns the account of an address, or of the address of a connection.
func (s *scene) account(name string) *Account {
	name = strings.TrimRight(name, "0123456789")
	if s.accounts[name] == nil {
		s.accounts[name] = &Account{}
	}
	return s.accounts[name]
}

// conn returns the connection of this name. Connections have numbers in the order of their first commands.
func (s *scene) conn(name string) *conn {
	if s.conns[name] == nil {
		c := &conn{from: s.account(name), number: uint64(len(s.conns))}
		c.closed = func(why ends.Reason) {
			s.memory.mu.Lock()
			s.told = append(s.told, fmt.Sprintf("  %v: %s is closed: %v", s.now(), name, why))
			s.memory.mu.Unlock()
			s.memory.Drop(c)
		}
		s.conns[name] = c
	}
	return s.conns[name]
}

// block runs the commands of a block and returns what they print.
func (s *scene) block(commands string) string {
	var out strings.Builder
	for line := range strings.Lines(commands) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if said := s.run(strings.Fields(line)); said != "" {
			fmt.Fprintln(&out, said)
		}
		synctest.Wait()
		s.memory.mu.Lock() // connections that still wait add to the list later
		slices.Sort(s.told)
		for _, x := range s.told {
			fmt.Fprintln(&out, x)
		}
		s.told = nil
		s.memory.mu.Unlock()
	}
	return out.String()
}

// run runs one command.
func (s *scene) run(words []string) string {
	arg := func(i int) string {
		must.That(s.t, i < len(words), "%v: an argument is missing", words)
		return words[i]
	}
	number := func(i int) int { return must.Get(strconv.Atoi(arg(i)))(s.t) }
	has := func(word string) bool { return slices.Contains(words, word) }
	switch words[0] {
	case "server": // server LIMIT PER-ADDRESS CONNS: a new server without connections
		s.stop()
		synctest.Wait()
		done := make(chan struct{})
		*s = scene{t: s.t, start: time.Now(), accounts: map[string]*Account{}, conns: map[string]*conn{},
			loans: map[string]*Loan{}, portions: map[string]*Portion{}, stop: func() { close(done) }}
		s.shares = &Shares{Bytes: number(2)}
		s.shares.SetConns(number(3))
		s.memory = &Memory{Limit: number(1), Shares: s.shares, Now: s.now, Waits: func() {}, Done: done}
	case "conns": // an operator changes the limit of connections
		s.shares.SetConns(number(1))
	case "servers": // the cluster has so many servers
		s.shares.SetServers(int64(number(1)))
	case "sleep":
		time.Sleep(must.Get(time.ParseDuration(arg(1)))(s.t))

	case "spend": // spend ADDRESS STEPS
		if wait := s.shares.Spend(s.account(arg(1)), int64(number(2)), s.now()); wait > 0 {
			return "waits " + wait.String()
		}
		return s.owes(arg(1))
	case "charge": // charge ADDRESS STEPS
		s.account(arg(1)).Charge(int64(number(2)))
		return s.owes(arg(1))
	case "settle": // the address is paid for the time that has passed
		s.shares.Settle(s.account(arg(1)), s.now())
		return s.owes(arg(1))
	case "forgive":
		s.account(arg(1)).Forgive()
		return s.owes(arg(1))
	case "watches": // watches ADDRESS BYTES
		s.account(arg(1)).SetWatches(number(2))
	case "room": // room ADDRESS BYTES: whether it may have so many more
		return fmt.Sprint(s.shares.Room(s.account(arg(1)), number(2)))

	case "take": // take CONNECTION in|out BYTES [force]
		if !s.memory.Try(s.conn(arg(1)), parts[arg(2)], number(3), has("force")) {
			return "no room"
		}
		return s.used()
	case "wait": // wait CONNECTION in|out BYTES
		c, name, part, n := s.conn(arg(1)), arg(1), parts[arg(2)], number(3)
		go func() {
			got := s.memory.Wait(c, part, n)
			s.memory.mu.Lock()
			defer s.memory.mu.Unlock()
			end := map[bool]string{true: "has it", false: "gives up"}[got]
			s.told = append(s.told, fmt.Sprintf("  %v: %s %s", s.now(), name, end))
		}()
	case "begin", "end": // a frame of the connection begins, or is complete
		s.memory.Partial(s.conn(arg(1)), words[0] == "begin")
	case "moved": // moved CONNECTION BYTES
		s.memory.Moved(s.conn(arg(1)), number(2))
	case "drop":
		s.memory.Drop(s.conn(arg(1)))
		return s.used()
	case "close": // the client closes its connection
		s.conn(arg(1)).Close(ends.Client)

	case "lend": // lend ADDRESS PORTION BYTES [alone] [free]
		p := s.portions[arg(2)]
		if p == nil {
			p = NewPortion(number(3))
			s.portions[arg(2)] = p
		}
		loan, own := s.memory.Lend(s.account(arg(1)), p, has("alone"), has("free"))
		switch {
		case own:
			return "no room for the address"
		case loan == nil:
			return "no room"
		}
		s.loans[arg(1)+arg(2)] = loan
		return s.used()
	case "share": // another outbox of the address points into the portion
		s.loans[arg(1)+arg(2)].Share()
	case "put": // an outbox of the address no longer points into the portion
		s.loans[arg(1)+arg(2)].Put()
		return s.used()
	default:
		s.t.Fatalf("%v: there is no such command", words)
	}
	return ""
}

var parts = map[string]Part{"in": Input, "out": Output}

// owes describes what an address owes.
func (s *scene) owes(name string) string {
	a := s.account(name)
	text := fmt.Sprintf("owes %d", a.Owed())
	if s.shares.Indebted(a) {
		text += ", gets no events"
	}
	return text
}

// used describes the memory in use.
func (s *scene) used() string {
	text := fmt.Sprintf("used %d", s.memory.Used())
	for _, name := range slices.Sorted(maps.Keys(s.accounts)) {
		if n := s.accounts[name].Buffers(); n != 0 {
			text += fmt.Sprintf(", %s %d", name, n)
		}
	}
	return text
}
