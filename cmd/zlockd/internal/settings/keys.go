package settings

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/server/admin"
)

// toFlag is the rule for a key that sets a flag. The functions in `translate` change the key's value before,
// one after the other.
func toFlag(flag string, translate ...func(string) (string, error)) rule {
	return rule{"sets --" + flag, func(z *zoo, _, value string) (err error) {
		for _, t := range translate {
			if value, err = t(value); err != nil {
				return err
			}
		}
		err = z.set(flag, value)
		if err == nil {
			return nil
		}
		why := strings.TrimPrefix(cli.FlagError(z.flags, err, nil).Error(), "--"+flag+" ")
		if flag == "super-digest" {
			why = "wrong form"
		}
		return errors.New(why)
	}}
}

// The functions below translate switches. ZooKeeper reads each switch in its own way; testdata/zookeys.table
// shows how it reads each value.

// exactly() translates a switch that is on only if its value is `word`, in the same case. As in ZooKeeper,
// any other value means off.
func exactly(word string) func(string) (string, error) {
	return func(value string) (string, error) { return strconv.FormatBool(value == word), nil }
}

// isTrue translates the value of a key: `true`, in upper or lower case, means on, and all else means off.
func isTrue(value string) (string, error) {
	return strconv.FormatBool(strings.EqualFold(value, "true")), nil
}

// notTrue translates a switch for a flag of the opposite meaning: the value true switches the flag off.
func notTrue(value string) (string, error) {
	return strconv.FormatBool(!strings.EqualFold(value, "true")), nil
}

// strictly() makes a rule accept only true and false, because ZooKeeper accepts nothing else for its key.
func strictly(r rule) rule {
	return rule{r.means, func(z *zoo, key, value string) error {
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		return r.apply(z, key, value)
	}}
}

// The functions below translate numbers. In some keys ZooKeeper reads a number with a leading 0 as octal, in
// others as decimal.

// unless() makes a rule do nothing for the value `good`, in upper or lower case.
func unless(good string, r rule) rule {
	return rule{r.means, func(z *zoo, key, value string) error {
		if strings.EqualFold(value, good) {
			return nil
		}
		return r.apply(z, key, value)
	}}
}

// number() is the rule for a key whose number is stored by put(), because no flag has this setting.
func number(means string, read func(string) (string, error), put func(*Settings, int64)) rule {
	return rule{means, func(z *zoo, _, value string) error {
		text, err := read(value)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		put(z.s, max(n, 0))
		return err
	}}
}

// whitelist() maps the list of four-letter words. It leaves out words that zlockd does not have.
func whitelist(z *zoo, key, value string) error {
	var known []string
	for w := range strings.SplitSeq(value, ",") {
		w = strings.TrimSpace(w)
		if w == "*" || len(w) == 4 && admin.IsWord([4]byte([]byte(w))) {
			known = append(known, w)
		} else if w != "" {
			z.s.Note(key, "there is no four-letter word %s", w)
		}
	}
	// Add srvr: otherwise a list that is empty now would mean the default list.
	return z.set("4lw-whitelist", strings.Join(append(known, "srvr"), ","))
}

// later() is the rule for a key that has a meaning only together with others. finish() handles it when all
// keys have been read.
func later(means string) rule {
	return rule{means, func(*zoo, string, string) error { return nil }}
}

func serverLine(z *zoo, key, value string) error {
	id, err := zooID(strings.TrimPrefix(key, "server."))
	if err != nil {
		return err
	}
	sv, err := config.ParseAddresses(id, value)
	if err != nil {
		return err
	}
	z.servers = append(z.servers, sv)
	return nil
}

// forceSync adds a note if the file switches syncs off, as a ZooKeeper reads it: only the value "no", in
// lower case, does. A zlockd always syncs.
func forceSync(z *zoo, key, value string) error {
	if value == "no" {
		z.s.Note(key, "every write is synced before it is acknowledged")
	}
	return nil
}

func peerType(_ *zoo, _, value string) error {
	if v := strings.ToLower(value); v != "observer" && v != "participant" {
		return fmt.Errorf("%q is neither observer nor participant", value)
	}
	return nil
}

// noEffect begins the warning about a key without effect.
const noEffect = "no effect: "

func ignored(why string) rule {
	return rule{noEffect + why, func(z *zoo, key, _ string) error {
		z.s.Note(key, "%s", why)
		return nil
	}}
}

func refused(why string) rule {
	return rule{"refused: " + why, func(*zoo, string, string) error { return errors.New(why) }}
}

func refusedWhenTrue(why string) rule {
	return rule{"refused when true: " + why, func(_ *zoo, _, value string) error {
		if strings.EqualFold(value, "true") {
			return errors.New(why)
		}
		return nil
	}}
}

// dataLogDir notes that the key has no effect. It keeps the value for a check: the server does not start
// while that directory has logs of a ZooKeeper.
func dataLogDir(z *zoo, key, value string) error {
	z.s.dataLogDir = value
	z.s.Note(key, "the log is kept under dataDir")
	return nil
}

// decimal() translates a number that ZooKeeper reads as decimal, even with a leading 0.
func decimal(value string) (string, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return "", fmt.Errorf("%q is not a whole number", value)
	}
	return strconv.FormatInt(n, 10), nil
}

// decoded() translates a number that ZooKeeper takes from a system property: 16, 0x10, #10 and 020 are the
// same there. It refuses a value that ZooKeeper could not read: ZooKeeper would silently take its default.
func decoded(value string) (string, error) {
	digits, sign := value, ""
	if value != "" && (value[0] == '-' || value[0] == '+') {
		digits, sign = value[1:], value[:1]
	}
	base := 10
	for _, prefix := range []string{"0x", "0X", "#"} {
		if rest, ok := strings.CutPrefix(digits, prefix); ok {
			digits, base = rest, 16
		}
	}
	if base == 10 && len(digits) > 1 && digits[0] == '0' {
		base = 8
	}
	n, err := strconv.ParseUint(digits, base, 40)
	if err != nil {
		return "", fmt.Errorf("%q is not a whole number", value)
	}
	return strings.TrimPrefix(sign, "+") + strconv.FormatUint(n, 10), nil
}
