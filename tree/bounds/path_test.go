package bounds

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// A path of one byte is valid only if the byte is printable ASCII. Other characters have several bytes.
func TestBytesOfAPath(t *testing.T) {
	for b := range 256 {
		path := "/a" + string([]byte{byte(b)})
		expect.Equal(t, ValidPath(path), b >= 0x20 && b < 0x7f && b != '/', "%q", path)
	}
	for path, valid := range map[string]bool{"/\u009f": false, "/\u00a0": true, "/\ud7ff": true, "/\uf8ff": false,
		"/\uf900": true, "/\uffef": true, "/\ufff0": false, "/\U0001f512": false, "/\u00a0/x": true} {
		expect.Equal(t, ValidPath(path), valid, "%q", path)
	}
}
