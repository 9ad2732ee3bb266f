package tree

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Of two fields with the same name, the first counts, even if the value of the first is not a number.
func TestTextOfAQuotaIsRead(t *testing.T) {
	none := quotaText{-1, -1, -1, -1}
	for text, want := range map[string]quotaText{
		"":                 none,
		"count":            none,
		"=;=,;":            none,
		"count=1":          {1, -1, -1, -1},
		"bytes=1":          {-1, 1, -1, -1},
		"countHardLimit=1": {-1, -1, 1, -1},
		"byteHardLimit=1":  {-1, -1, -1, 1},
		"count=1,bytes=2;countHardLimit=3,byteHardLimit=4": {1, 2, 3, 4},
		"byteHardLimit=4;countHardLimit=3;bytes=2;count=1": {1, 2, 3, 4},
		"count=1;count=2":    {1, -1, -1, -1},
		"count=x;count=2":    none,
		"count;count=2":      none,
		"bytes,bytes=2":      none,
		"coun=2;count=1":     {1, -1, -1, -1},
		"Count=2;count=1":    {1, -1, -1, -1},
		" count=2":           none,
		"count= 2":           none,
		"count=2=":           {2, -1, -1, -1},
		"count=2==,bytes=3=": {2, 3, -1, -1},
		"count=-7":           {-7, -1, -1, -1},
		"count=+7":           {7, -1, -1, -1},
		"count=9223372036854775807;bytes=9223372036854775808": {9223372036854775807, -1, -1, -1},
		",=1;count=1": {1, -1, -1, -1},
	} {
		expect.Equal(t, readQuotaText(text), want, "%q", text)
	}
}

func TestLimitsOfAQuotaAreExceeded(t *testing.T) {
	for _, x := range []struct {
		limit, used, more int64
		want              bool
	}{
		{5, 4, 1, false}, {5, 5, 1, true}, {5, 6, 0, false}, {5, 9, -1, true}, {5, 6, -1, false},
		{0, 0, 1, true}, {0, 0, 0, false}, {0, -1, 1, false}, {-1, 5, 1, false}, {-2, 5, 1, false},
	} {
		expect.Equal(t, exceeds(x.limit, x.used, x.more), x.want, "%d and %d of %d", x.used, x.more, x.limit)
	}
}

func TestPathsThatHoldAQuota(t *testing.T) {
	for path, want := range map[string]string{"/zookeeper/quota": "", "/zookeeper/quota/": "/", "/zookeeper/quota/a": "/a",
		"/zookeeper/quota/a/b": "/a/b", "/zookeeper/quotas": "", "/zookeeper": "", "/": "", "": "",
		"/a/zookeeper/quota/b": "", "/zookeeper/config": ""} {
		expect.Equal(t, quotaOf(path), want, "%q", path)
	}
}
