package abuse

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// rateAttacks use the port for tickets and draw from rates.
var rateAttacks = []attack{
	{"draws", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(int64) (string, string) {
			return "POST /v1/rates/attack/one?limit=1000000&per=24h", ""
		})
	}},
	{"draws by a secret", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return "POST /v1/rates/attack/secret?limit=1000000&per=24h", secretOf(k % 900)
		})
	}},
	{"draws that are refused", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return "POST /v1/rates/attack/none?limit=1&per=24h", secretOf(k)
		})
	}},
	{"draws from many rates", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/rates/attack/many/%d?limit=1&per=24h", k), ""
		})
	}},
	{"draws from deep rates", func(a *attacker) {
		deep := strings.Repeat("/d", 1000)
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/rates/attack/deep/%d%s?limit=1&per=24h", k, deep), ""
		})
	}},
	{"draws from long rates", func(a *attacker) {
		long := strings.Repeat("l", 10_000)
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/rates/attack/long/%d%s?limit=1&per=24h", k, long), ""
		})
	}},
	{"odd limits and times", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			limit := []int64{1, 256, 257, 1_000_000, 1_000_001, 1 << 62, 0, -1}[rand.IntN(8)]
			per := []string{"1s", "1001ms", "24h", "24h1ns", "-1s", "1e9s", "0", "7m"}[rand.IntN(8)]
			return fmt.Sprintf("POST /v1/rates/attack/odd/%d?limit=%d&per=%s", k%20, limit, per), ""
		})
	}},
	{"waits for draws", func(a *attacker) {
		a.ticketFlood(60, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/rates/attack/wait/%d?limit=1&per=24h&wait=10m", k%9), ""
		})
	}},
	{"waits of many kinds", func(a *attacker) {
		a.ticketFlood(60, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/rates/attack/kinds?limit=%d&per=24h&wait=10m", 1+k%1000), ""
		})
	}},
	{"looks at rates", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("GET /v1/rates/attack/one?limit=%d", 1+k%1_000_000), ""
		})
	}},
	{"slow readers of draws", func(a *attacker) {
		one := "POST /v1/rates/attack/slow?limit=1000000&per=24h HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Length: 0\r\nAuthorization: Bearer " + tokenMark + "attacker\r\n\r\n"
		a.rawTickets(100, func() string { return strings.Repeat(one, 500) }, hold)
	}},
}
