package node

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/zlockd/zlockd/client/zk"
)

// stats is a node's metadata in JSON.
type stats struct {
	Created        string `json:"created"`
	Modified       string `json:"modified"`
	CreatedZxid    string `json:"czxid"`
	ModifiedZxid   string `json:"mzxid"`
	ChildrenZxid   string `json:"pzxid"`
	DataVersion    int32  `json:"dataVersion"`
	ChildVersion   int32  `json:"cversion"`
	ACLVersion     int32  `json:"aclVersion"`
	EphemeralOwner string `json:"ephemeralOwner"`
	DataLength     int32  `json:"dataLength"`
	Children       int32  `json:"numChildren"`
}

func hex(n int64) string { return fmt.Sprintf("0x%x", n) }

func statsOf(s *zk.Stat) *stats {
	stamp := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	return &stats{stamp(s.Ctime), stamp(s.Mtime), hex(s.Czxid), hex(s.Mzxid), hex(s.Pzxid), s.Version,
		s.Cversion, s.Aversion, hex(s.EphemeralOwner), s.DataLength, s.NumChildren}
}

// statOf returns the metadata for JSON if the user has asked for them.
func (c *verbCall) statOf(s *zk.Stat) *stats {
	if !c.stat {
		return nil
	}
	return statsOf(s)
}

// printStat prints the metadata as zkCli does, if the user has asked for them.
func (c *verbCall) printStat(s *zk.Stat) {
	if !c.stat {
		return
	}
	date := func(ms int64) string { return time.UnixMilli(ms).Format("Mon Jan 02 15:04:05 MST 2006") }
	c.print("cZxid = %s\nctime = %s\nmZxid = %s\nmtime = %s\npZxid = %s\ncversion = %d\ndataVersion = %d\n"+
		"aclVersion = %d\nephemeralOwner = %s\ndataLength = %d\nnumChildren = %d", hex(s.Czxid),
		date(s.Ctime), hex(s.Mzxid), date(s.Mtime), hex(s.Pzxid), s.Cversion, s.Version, s.Aversion,
		hex(s.EphemeralOwner), s.DataLength, s.NumChildren)
}

// content is a node's data in JSON: text if they are UTF-8, else base64.
type content struct {
	Data   *string `json:"data,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func contentOf(data []byte) content {
	if data == nil {
		return content{}
	}
	if utf8.Valid(data) {
		text := string(data)
		return content{Data: &text}
	}
	return content{Base64: data}
}

func (c content) bytes() []byte {
	if c.Data != nil {
		return []byte(*c.Data)
	}
	return c.Base64
}
