package port

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// ReadJSON reads the body of a request into `into`. The body must be one JSON value of at most `most` bytes.
// ReadJSON refuses fields that `into` does not have, and anything that follows the value.
func ReadJSON(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows its JSON value")
	}
	return nil
}
