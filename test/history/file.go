package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Save writes a history to a file, one record a line, for [Load].
func Save(path string, records []Record) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for i := range records {
		if err = enc.Encode(&records[i]); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
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
