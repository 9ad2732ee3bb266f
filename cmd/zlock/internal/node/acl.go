package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
)

// letters are the permissions in zkCli's order.
var letters = []struct {
	letter rune
	perm   int32
}{{'c', zk.PermCreate}, {'d', zk.PermDelete}, {'r', zk.PermRead}, {'w', zk.PermWrite}, {'a', zk.PermAdmin}}

// parseACL reads entries scheme:id:perms, separated by commas. An id may contain colons.
func parseACL(text string) (list []zk.ACL, err error) {
	for part := range strings.SplitSeq(text, ",") {
		a, err := parseEntry(part)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// parseEntry reads one entry scheme:id:perms. The id may contain colons and commas.
func parseEntry(text string) (a zk.ACL, err error) {
	first, last := strings.IndexByte(text, ':'), strings.LastIndexByte(text, ':')
	if first < 0 || first == last {
		return a, fmt.Errorf("%s does not have the form scheme:id:perm", answer.Visible(text))
	}
	a.ID = zk.ID{Scheme: text[:first], ID: text[first+1 : last]}
	for _, r := range text[last+1:] {
		was := a.Perms
		for _, l := range letters {
			if l.letter == r {
				a.Perms |= l.perm
			}
		}
		if a.Perms == was && !strings.ContainsRune("cdrwa", r) {
			return a, fmt.Errorf("unknown permission %c: want letters of cdrwa", r)
		}
	}
	return a, nil
}

func perms(p int32) string {
	var b strings.Builder
	for _, l := range letters {
		if p&l.perm != 0 {
			b.WriteRune(l.letter)
		}
	}
	return b.String()
}

// textOf formats an entry of an ACL for parseEntry.
func textOf(a zk.ACL) string { return a.Scheme + ":" + a.ID.ID + ":" + perms(a.Perms) }

func getACL(ctx context.Context, c *verbCall) error {
	list, st, err := c.Conn.GetACL(ctx, c.args[0])
	if err != nil {
		return err
	}
	if c.Format == call.JSON {
		texts := []string{}
		for _, a := range list {
			texts = append(texts, textOf(a))
		}
		return c.json(struct {
			Path string   `json:"path"`
			ACL  []string `json:"acl"`
			Stat *stats   `json:"stat,omitempty"`
		}{c.args[0], texts, c.statOf(&st)})
	}
	for _, a := range list {
		if c.Format == call.Plain {
			c.print("%s", answer.Visible(textOf(a)))
			continue
		}
		c.print("'%s,'%s\n: %s", answer.Visible(a.Scheme), answer.Visible(a.ID.ID), perms(a.Perms))
	}
	c.printStat(&st)
	return nil
}

func setACL(ctx context.Context, c *verbCall) error {
	list, err := parseACL(c.args[1])
	if err != nil {
		return err
	}
	if c.deep {
		return c.walk(ctx, c.args[0], nil, func(p string) error {
			_, err := c.Conn.SetACL(ctx, p, list, c.version)
			return err
		})
	}
	st, err := c.Conn.SetACL(ctx, c.args[0], list, c.version)
	if err == nil {
		c.printStat(&st)
	}
	return err
}

func addAuth(ctx context.Context, c *verbCall) error {
	a := zk.Auth{Scheme: c.args[0]}
	if len(c.args) > 1 {
		a.Secret = []byte(c.args[1])
	}
	if err := c.Conn.AddAuth(ctx, a); err != nil {
		return fmt.Errorf("the server does not accept this identity of the scheme %s: %w",
			answer.Visible(a.Scheme), err)
	}
	return nil
}

func whoAmI(ctx context.Context, c *verbCall) error {
	ids, err := c.Conn.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if c.Format == call.JSON {
		list := []string{}
		for _, id := range ids {
			list = append(list, id.Scheme+":"+id.ID)
		}
		return c.json(struct {
			IDs []string `json:"ids"`
		}{list})
	}
	if len(ids) == 0 {
		return errors.New("the session is not signed in")
	}
	c.print("Auth scheme: User")
	for _, id := range ids {
		c.print("%s: %s", answer.Visible(id.Scheme), answer.Visible(id.ID))
	}
	return nil
}
