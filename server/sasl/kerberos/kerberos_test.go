package kerberos

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestWhoHasATicketIsLetIn(t *testing.T) {
	for etype := range suites {
		key := newKey(etype)
		s, _ := newService(t, Names{}, keytab{{server, 3, newKey(etype)}, {server, 4, key}})
		for _, mutual := range []bool{false, true} {
			for name, change := range map[string]func(*testClient){
				"as usual":          func(*testClient) {},
				"no key of its own": func(c *testClient) { c.auth.Key = sessionKey{} },
				"no number":         func(c *testClient) { c.auth.Sequence = 0 },
				"no start":          func(c *testClient) { c.secret.Start = time.Time{} },
				"clock ahead":       func(c *testClient) { c.auth.Time = now.Add(Skew - time.Second) },
				"clock behind":      func(c *testClient) { c.auth.Time = now.Add(-Skew + time.Second) },
				"version not told":  func(c *testClient) { c.ticket.Secret.KVNO = 0 },
				"checked realms": func(c *testClient) {
					c.secret.Transited.Realms, c.secret.Flags = []byte("B"),
						bits(flagTransitChecked)
				},
				"a key of its type": func(c *testClient) { c.auth.Key = newKey(17) },
				"just begins to be": func(c *testClient) { c.secret.Start = now.Add(Skew) },
				"has just ended":    func(c *testClient) { c.secret.End = now.Add(-Skew) },
				"bindings and more": func(c *testClient) {
					c.auth.Checksum.Value = append(c.auth.Checksum.Value, 1, 2,
						3)
				},
				"signed in long ago": func(c *testClient) { c.secret.SignedInAt = now.Add(-20 * time.Hour) },
			} {
				c := newClient(key, 4, mutual)
				change(c)
				who, err := c.signIn(t, s)
				expect.OK(t, err, "%s, %s, mutual %v", suites[etype].name, name, mutual)
				expect.Equal(t, who, "alice@ZK.TEST", "%s, %s, mutual %v: who", suites[etype].name, name, mutual)
			}
		}
	}
}

func TestEverybodyElseIsRefused(t *testing.T) {
	key := newKey(18)
	s, _ := newService(t, Names{}, keytab{{server, 4, key}})
	mallory := Principal{[]string{"mallory"}, "ZK.TEST"}
	for name, c := range map[string]struct {
		change func(*testClient)
		kind   error
		want   string
	}{
		"another key": {func(c *testClient) { c.serverKey = newKey(18) }, errRefused,
			"export the keytab again"},
		"a key of another type": {func(c *testClient) { c.serverKey = newKey(17) }, errRefused,
			"no key of encryption type 17"},
		"another server": {func(c *testClient) { c.ticket.Server = rawName(alice) }, errRefused,
			"for alice@ZK.TEST, and this server is zookeeper/host@ZK.TEST"},
		"another realm": {func(c *testClient) { c.ticket.Realm = rawRealm("OTHER") }, errRefused,
			"zookeeper/host@OTHER"},
		"expired": {func(c *testClient) { c.secret.End = now.Add(-Skew - time.Second) }, errRefused,
			"has expired at 2026-11-01T11:54:59Z"},
		"later": {func(c *testClient) { c.secret.Start = now.Add(Skew + time.Second) },
			errRefused, "compare the clocks"},
		"postdated": {func(c *testClient) { c.secret.Flags = bits(flagInvalid) }, errRefused,
			"not valid yet"},
		"clock behind": {func(c *testClient) { c.auth.Time = now.Add(-Skew - time.Second) }, errRefused,
			"its clock differs from this server's by 5m1s"},
		"clock ahead": {func(c *testClient) { c.auth.Time = now.Add(Skew + time.Second) }, errRefused,
			"its clock differs from this server's by 5m1s"},
		"a stolen ticket": {func(c *testClient) { c.key = newKey(18) }, errRefused, "authenticator"},
		"another's ticket": {func(c *testClient) { c.auth.Client = rawName(mallory) }, errRefused,
			"mallory@ZK.TEST uses the ticket of alice@ZK.TEST"},
		"another's realm": {func(c *testClient) { c.auth.Realm = rawRealm("OTHER") }, errRefused,
			"alice@OTHER uses the ticket"},
		"realms come through": {func(c *testClient) { c.secret.Transited.Realms = []byte("B") }, errRefused,
			"no KDC has checked"},
		"user to user": {func(c *testClient) { c.req.Options = bits(optionUseSessionKey) }, errProtocol,
			"user-to-user authentication is not supported"},
		"version of the request": {func(c *testClient) { c.req.Version = 4 }, errProtocol, "version 4"},
		"type of the request":    {func(c *testClient) { c.req.Type = 15 }, errProtocol, "type 15"},
		"version of the ticket": {func(c *testClient) { c.ticket.Version = 4 }, errProtocol,
			"ticket of version 4"},
		"version of the proof": {func(c *testClient) { c.auth.Version = 4 }, errProtocol,
			"the authenticator has version 4"},
		"microseconds":            {func(c *testClient) { c.auth.Micros = 1_000_000 }, errProtocol, "1000000 µs"},
		"checksum of another use": {func(c *testClient) { c.auth.Checksum.Type = 7 }, errProtocol, "RFC 4121"},
		"a short checksum": {func(c *testClient) { c.auth.Checksum.Value = c.auth.Checksum.Value[:23] },
			errProtocol, "RFC 4121"},
		"no checksum": {func(c *testClient) { c.auth.Checksum = checksum{} }, errProtocol, "RFC 4121"},
		"a weak key": {func(c *testClient) { c.auth.Key = sessionKey{23, make([]byte, 16)} }, errRefused,
			"encryption type 23 is not supported"},
		"a short key": {func(c *testClient) { c.auth.Key.Value = c.auth.Key.Value[:16] }, errRefused,
			"has 32 bytes"},
		"a name like two": {func(c *testClient) { c.secret.Client = rawName(Principal{[]string{"a/b"}, ""}) },
			errProtocol, "ambiguous"},
		"a name with a realm": {func(c *testClient) { c.secret.Client = rawName(Principal{[]string{"a@B"}, ""}) },
			errProtocol, "ambiguous"},
		"no name": {func(c *testClient) { c.secret.Client.Parts = c.secret.Client.Parts[:0] }, errProtocol,
			"ambiguous"},
		"an endless name": {func(c *testClient) {
			long := Principal{[]string{strings.Repeat("x", maxPrincipal)}, alice.Realm}
			c.secret.Client, c.auth.Client = rawName(long), rawName(long)
		}, errProtocol, "ambiguous"},
	} {
		for _, mutual := range []bool{false, true} {
			client := newClient(key, 4, mutual)
			c.change(client)
			_, err := client.signIn(t, s)
			expect.Is(t, err, c.kind, "%s", name)
			expect.Has(t, err.Error(), c.want, "%s: error", name)
		}
	}
	three := Principal{[]string{"a", "b", "c"}, "ZK.TEST"}
	client := newClient(key, 4, false)
	client.secret.Client, client.auth.Client = rawName(three), rawName(three)
	if who, err := client.signIn(t, s); !errors.Is(err, errRefused) {
		t.Errorf("a name of three parts: %q, %v", who, err)
	}
}

// In an exchange, the tokens that follow the Kerberos ticket are checked, too. An exchange that has succeeded
// or failed accepts no further token.
func TestTheRestOfAnExchange(t *testing.T) {
	key := newKey(20)
	s, _ := newService(t, Names{}, keytab{{server, 4, key}})
	sealed := func(c *testClient) []byte {
		return mirror(c.context.key, c.context.subkeyFlag|wrapSealed, "\x01\x00\x00\x00")
	}
	turned := func(c *testClient) []byte {
		token := c.choice("\x01\x00\x00\x00")
		body := token[wrapHeader:]
		copy(body, append(append([]byte{}, body[len(body)-5:]...), body[:len(body)-5]...))
		token[7] = 5
		return token
	}
	for name, c := range map[string]struct {
		last func(*testClient) []byte
		ok   bool
	}{
		"auth":               {func(c *testClient) []byte { return c.choice("\x01\x00\x00\x00") }, true},
		"auth, with a size":  {func(c *testClient) []byte { return c.choice("\x01\x00\xff\xff") }, true},
		"turned":             {turned, true},
		"integrity":          {func(c *testClient) []byte { return c.choice("\x02\x00\x00\x00") }, false},
		"auth and integrity": {func(c *testClient) []byte { return c.choice("\x03\x00\x00\x00") }, false},
		"nothing":            {func(c *testClient) []byte { return c.choice("\x01") }, false},
		"no token":           {func(*testClient) []byte { return nil }, false},
		"sealed":             {sealed, false},
		"from a server": {func(c *testClient) []byte {
			return mirror(c.context.key, c.context.subkeyFlag|1,
				"\x01\x00\x00\x00")
		}, false},
		"the other key": {func(c *testClient) []byte { return mirror(c.auth.Key, 0, "\x01\x00\x00\x00") }, false},
		"the other flag": {func(c *testClient) []byte { return mirror(c.context.key, 0, "\x01\x00\x00\x00") },
			false},
		"the wrong key": {func(c *testClient) []byte {
			return mirror(newKey(20), wrapAcceptorSubkey,
				"\x01\x00\x00\x00")
		}, false},
		"changed": {func(c *testClient) []byte {
			token := c.choice("\x01\x00\x00\x00bob")
			token[wrapHeader+4]++
			return token
		}, false},
		"a sum too long": {func(c *testClient) []byte {
			token := c.choice("\x01\x00\x00\x00")
			token[4] = 0xff
			return token
		}, false},
		"an endless token": {func(*testClient) []byte { return make([]byte, maxToken+1) }, false},
	} {
		client := newClient(key, 4, true)
		e := s.begin(rand.Reader)
		client.readAnswer(t, sure(e.Answer(client.hello(), now)))
		client.readOffer(t, sure(e.Answer(nil, now)))
		_, err := e.Answer(c.last(client), now)
		_, _, done := e.User()
		expect.Equal(t, done, c.ok, "%s: whether it is done", name)
		expect.Equal(t, err == nil, c.ok, "%s: whether it succeeds", name)
		expect.Fails(t, expect.Err(e.Answer(client.choice("\x01\x00\x00\x00"), now)),
			"%s: it goes on behind its end", name)
	}
	client := newClient(key, 4, true)
	e := s.begin(rand.Reader)
	sure(e.Answer(client.hello(), now))
	expect.Is(t, expect.Err(e.Answer([]byte("x"), now)), errProtocol,
		"a token where the client has nothing to say")
}

func TestReplay(t *testing.T) {
	key := newKey(18)
	s, _ := newService(t, Names{}, keytab{{server, 4, key}})
	client := newClient(key, 4, false)
	first := client.hello()
	sure(s.begin(rand.Reader).Answer(first, now))
	for _, at := range []time.Duration{0, Skew} {
		expect.Is(t, expect.Err(s.begin(rand.Reader).Answer(first, now.Add(at))), errReplay,
			"the same token after %s", at)
	}
	// A new authenticator of the same client with the same time is accepted.
	expect.OK(t, expect.Err(s.begin(rand.Reader).Answer(client.hello(), now)))

	// Another server, or this server after a restart, accepts a recorded first token. But the attacker cannot
	// read the server's new key, and so cannot continue.
	other, _ := newService(t, Names{}, keytab{{server, 4, key}})
	client = newClient(key, 4, true)
	hello := client.hello()
	e := s.begin(rand.Reader)
	client.readAnswer(t, sure(e.Answer(hello, now)))
	sure(e.Answer(nil, now))
	choice := client.choice("\x01\x00\x00\x00")
	sure(e.Answer(choice, now))
	replayed := other.begin(rand.Reader)
	sure(replayed.Answer(hello, now))
	sure(replayed.Answer(nil, now))
	expect.Fails(t, expect.Err(replayed.Answer(choice, now)), "a recorded client was let in elsewhere")
}

func TestReplaysAreForgottenLateAndBounded(t *testing.T) {
	sum := func(i int) [32]byte { return [32]byte{byte(i), byte(i >> 8)} }
	r := replays{limit: 1000}
	at := now
	for i := range 200 { // 200 minutes, some of them without a client
		if i%50 < 30 {
			must.OK(t, r.add(sum(i), at), "%v", i)
		}
		for old := i; old >= 0 && i-old <= int(2*Skew/time.Minute); old-- {
			must.That(t, old%50 >= 30 || r.add(sum(old), at) == errReplay,
				"minute %d: that of minute %d is forgotten", i, old)
		}
		at = at.Add(time.Minute)
	}
	r = replays{limit: 10}
	for i := range 20 {
		expect.Equal(t, r.add(sum(i), now) == nil, i < 10, "%d", i)
	}
	expect.OK(t, r.add(sum(30), now.Add(remembered+time.Second)), "after a while")
}

// recorded() reads what real clients have sent.
func recorded(t testing.TB) (keytabBytes []byte, clients [][]string) {
	t.Helper()
	f := must.Get(os.Open("testdata/recorded.txt"))(t)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case words[0] == "keytab":
			keytabBytes = sure(hex.DecodeString(words[1]))
		case words[0] != "#":
			clients = append(clients, words)
		}
	}
	return keytabBytes, clients
}

func TestRecordedClients(t *testing.T) {
	b, clients := recorded(t)
	must.Equal(t, len(clients), 5, "clients")
	for _, c := range clients {
		file := filepath.Join(t.TempDir(), "keytab")
		must.OK(t, os.WriteFile(file, b, 0o600))
		s, err := New(Options{Keytab: file, Principal: c[1], Logger: slog.New(slog.DiscardHandler)})
		must.OK(t, err)
		at := time.Unix(sure(strconv.ParseInt(c[2], 10, 64)), 0)
		e := s.begin(rand.Reader)
		for i, token := range c[3:] {
			answer, err := e.Answer(sure(hex.DecodeString(token)), at)
			if err != nil || i == 0 && len(answer) == 0 {
				t.Errorf("%s %s: token %d: %x, %v", c[0], c[1], i, answer, err)
			}
		}
		who, principal, done := e.User()
		if c[0] == "java" && (!done || who != "alice@ZK.TEST" || principal != who) {
			t.Errorf("Java's client is %q, %v", who, done)
		}
		if _, err := s.begin(rand.Reader).Answer(sure(hex.DecodeString(c[3])), at.Add(2*Skew)); !errors.Is(err,
			errRefused) {
			t.Errorf("ten minutes later: %v", err)
		}
	}
}

// All answers to clients differ, because keys and sequence numbers are not reused.
func TestAnswersDiffer(t *testing.T) {
	key := newKey(17)
	s, _ := newService(t, Names{}, keytab{{server, 4, key}})
	seen := map[string]bool{}
	for range 10 {
		c := newClient(key, 4, true)
		c.readAnswer(t, sure(s.begin(rand.Reader).Answer(c.hello(), now)))
		seen[fmt.Sprintf("%x", c.context.key.Value)] = true
	}
	expect.Equal(t, len(seen), 10, "keys in 10 exchanges")
}
