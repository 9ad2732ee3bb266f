package kerberos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

// Bounds of a keytab.
const (
	maxKeytab = 1 << 20
	maxTried  = 8 // more keys than that are not tried for a ticket
)

// keytab is the content of a keytab file: keys of one or several principals.
type keytab []keytabEntry

type keytabEntry struct {
	principal Principal
	version   uint32
	key       sessionKey
}

// readKeytab reads a keytab file. It refuses a file that other users can read.
func readKeytab(path string) (keytab, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxKeytab:
		return nil, fmt.Errorf("%s has %d bytes; a keytab has at most %d", path, info.Size(), maxKeytab)
	}
	if err := secretfile.Check(path, info); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeytab))
	if err != nil {
		return nil, err
	}
	k, err := parseKeytab(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

var errKeytab = errors.New("it is not a complete keytab of version 2, as ktutil and kadmin write it")

// parseKeytab reads version 2 of MIT's format. Before each entry stands its size; a negative size stands for
// a gap of that length.
func parseKeytab(b []byte) (keytab, error) {
	r := cryptobyte.String(b)
	var form uint16
	if !r.ReadUint16(&form) || form != 0x0502 {
		return nil, errKeytab
	}
	var k keytab
	for !r.Empty() {
		var size uint32
		if !r.ReadUint32(&size) {
			return nil, errKeytab
		}
		n := int(int32(size))
		if n == 0 {
			break // the entries end here, and zeros fill the rest
		}
		var body cryptobyte.String
		if !r.ReadBytes((*[]byte)(&body), max(n, -n)) {
			return nil, errKeytab
		}
		if n < 0 {
			continue
		}
		e, ok := parseEntry(body)
		if !ok {
			return nil, errKeytab
		}
		k = append(k, e)
	}
	if len(k) == 0 {
		return nil, errors.New("it holds no key")
	}
	return k, nil
}

// parseEntry reads an entry of a keytab; `ok` is false if the entry is not complete.
func parseEntry(r cryptobyte.String) (e keytabEntry, ok bool) {
	var parts, etype uint16
	var version uint8
	var text cryptobyte.String
	if !r.ReadUint16(&parts) || !r.ReadUint16LengthPrefixed(&text) {
		return e, false
	}
	e.principal.Realm = string(text)
	for range parts {
		if !r.ReadUint16LengthPrefixed(&text) {
			return e, false
		}
		e.principal.Parts = append(e.principal.Parts, string(text))
	}
	// Skip the type of the name and the time of the entry.
	ok = r.Skip(8) && r.ReadUint8(&version) && r.ReadUint16(&etype) && r.ReadUint16LengthPrefixed(&text)
	e.version, e.key = uint32(version), sessionKey{EType: int32(int16(etype)), Value: text}
	var longer uint32 // the last field, if present: the version again, for versions above 255
	if r.ReadUint32(&longer) && longer != 0 {
		e.version = longer
	}
	return e, ok
}

// choose() returns the principal with the name `text`, and its keys. Without a name, the keytab must have
// only one principal, which it returns.
func (k keytab) choose(text string) (Principal, keytab, error) {
	var want Principal
	if text != "" {
		var err error
		if want, err = ParsePrincipal(text); err != nil {
			return want, nil, err
		}
	}
	var mine keytab
	var found, all []string
	for _, e := range k {
		all = append(all, e.principal.String())
		name := e.principal
		if want.Realm == "" {
			name.Realm = ""
		}
		if text != "" && !name.equal(want) {
			continue
		}
		if _, err := e.key.suite(); err != nil {
			continue
		}
		mine, found = append(mine, e), append(found, e.principal.String())
	}
	slices.Sort(found)
	slices.Sort(all)
	switch found = slices.Compact(found); {
	case len(found) == 0 && text == "":
		return want, nil, errors.New("it holds no AES key; other encryption types are not supported")
	case len(found) == 0:
		return want, nil, fmt.Errorf("it holds no AES key of %s, but keys of %s", text,
			strings.Join(slices.Compact(all), ", "))
	case len(found) > 1:
		return want, nil, fmt.Errorf("it holds keys of %s: name this server's principal with "+
			"--kerberos-principal",
			strings.Join(found, ", "))
	}
	return mine[0].principal, mine, mine[0].principal.check()
}

// find() returns the keys that may decrypt e: first those with the version that e names.
func (k keytab) find(e encrypted) ([]sessionKey, error) {
	var right, other []sessionKey
	for _, entry := range k {
		switch {
		case entry.key.EType != e.EType:
		case int64(entry.version) == e.KVNO:
			right = append(right, entry.key)
		default:
			other = append(other, entry.key)
		}
	}
	keys := append(right, other...)
	if len(keys) == 0 {
		return nil, fmt.Errorf("the keytab has no key of encryption type %d", e.EType)
	}
	return keys[:min(len(keys), maxTried)], nil
}

// stampOf returns the time and the size of a file, which change with its content.
func stampOf(path string) (stamp [2]int64) {
	if info, err := os.Stat(path); err == nil {
		stamp = [2]int64{info.ModTime().UnixNano(), info.Size()}
	}
	return stamp
}
