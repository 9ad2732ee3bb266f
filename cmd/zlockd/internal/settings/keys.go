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

// toFlag maps a key to a flag. The functions in `translate` first change the value, one after the other.
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

// Translations of switches, as ZooKeeper reads each; testdata/zookeys.table has its result for each value.

// exactly() translates a key that is on only if its value is `word`, with the same case of every letter. All
// other values mean off, as for ZooKeeper.
func exactly(word string) func(string) (string, error) {
	return func(value string) (string, error) { return strconv.FormatBool(value == word), nil }
}

// isTrue translates the value of a key: `true`, in upper or lower case, means on, and all else means off.
func isTrue(value string) (string, error) {
	return strconv.FormatBool(strings.EqualFold(value, "true")), nil
}

// notTrue translates a key to a flag that switches off what the key switches on.
func notTrue(value string) (string, error) {
	return strconv.FormatBool(!strings.EqualFold(value, "true")), nil
}

// strictly() makes a rule refuse values other than true and false, for keys where ZooKeeper refuses them.
func strictly(r rule) rule {
	return rule{r.means, func(z *zoo, key, value string) error {
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		return r.apply(z, key, value)
	}}
}

// Translations of numbers. ZooKeeper reads them in two ways: in one a leading 0 has no meaning, in the other
// it means octal.

// unless() makes a rule ignore the value `good`, in upper or lower case.
func unless(good string, r rule) rule {
	return rule{r.means, func(z *zoo, key, value string) error {
		if strings.EqualFold(value, good) {
			return nil
		}
		return r.apply(z, key, value)
	}}
}

// number() maps a key without a flag to a setting.
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

// whitelist() omits the words that only ZooKeeper has.
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
	// The word srvr is always allowed, so add it even to an empty list.
	return z.set("4lw-whitelist", strings.Join(append(known, "srvr"), ","))
}

// later() marks a key that is read together with other keys, once all keys are known.
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

// forceSync adds a note if the file tries to switch syncs off, because a server always syncs. For ZooKeeper
// only the value "no" in lower case switches them off.
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

// dataLogDir has no effect for a server. Its value is kept, because a server must not start while that
// directory holds logs of a ZooKeeper.
func dataLogDir(z *zoo, key, value string) error {
	z.s.dataLogDir = value
	z.s.Note(key, "the log is kept under dataDir")
	return nil
}

// decimal() is for a number that ZooKeeper parses itself.
func decimal(value string) (string, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return "", fmt.Errorf("%q is not a whole number", value)
	}
	return strconv.FormatInt(n, 10), nil
}

// decoded() is for a number that ZooKeeper reads from a system property: 16, 0x10, #10 and 020 are the same.
// It refuses a value for which ZooKeeper would silently use a default.
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
