package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Save writes a history to a file, one record a line, for [Load].
func Save(path string, records []Record) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range records {
		if err := enc.Encode(&records[i]); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// Load reads a saved history.
func Load(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var records []Record
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var r Record
		switch err := d.Decode(&r); err {
		case nil:
			records = append(records, r)
		case io.EOF:
			return records, nil
		default:
			return records, fmt.Errorf("%s: record %d: %w", path, len(records), err)
		}
	}
}
