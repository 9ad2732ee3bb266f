package peer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// maxJSON is the longest greeting, question or answer.
const maxJSON = 1 << 20

// readJSON reads a length and that much JSON.
func readJSON(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxJSON {
		return fmt.Errorf("message of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// writeJSON writes what readJSON reads, behind some bytes, in one call.
func writeJSON(w io.Writer, v any, before ...byte) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxJSON {
		return fmt.Errorf("message of %d bytes: no more than %d are read", len(b), maxJSON)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(before, uint32(len(b))), b...))
	return err
}
