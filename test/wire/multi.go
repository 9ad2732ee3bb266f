package wire

import (
	"cmp"
	"fmt"

	"github.com/zlockd/zlockd/jute"
)

// Result is the outcome of one operation of a multi or multiRead.
type Result struct {
	Type     jute.OpCode  // jute.OpError when the operation failed
	Code     jute.ErrCode // the error record's code
	Path     string       // path of a create
	Data     []byte       // data of a getData
	Children []string     // names of a getChildren
	Stat     jute.Stat    // zero if this type of result has none
}

// Multi runs operations as one transaction. The error is about the request as a whole; a failed operation
// shows in its Result.
func (c *Conn) Multi(ops ...Op) ([]Result, error) { return c.multi(jute.OpMulti, ops) }

// MultiRead runs several reads as one request.
func (c *Conn) MultiRead(ops ...Op) ([]Result, error) { return c.multi(jute.OpMultiRead, ops) }

func (c *Conn) multi(op jute.OpCode, ops []Op) (results []Result, err error) {
	var bad error
	err = c.do(op, Multi(ops...), func(d *jute.Decoder) { results, bad = DecodeResults(d) })
	return results, cmp.Or(bad, err)
}

// DecodeResults reads the response record of a multi or multiRead.
func DecodeResults(d *jute.Decoder) ([]Result, error) {
	var results []Result
	for {
		h := d.MultiHeader()
		if d.Err() != nil {
			return results, fmt.Errorf("wire: multi result: %w", d.Err())
		}
		if h.Done {
			if h.Type != jute.OpError || h.Err != -1 || len(d.Rest()) > 0 {
				return results, fmt.Errorf("wire: multi result ends with %+v and %d bytes more", h, len(d.Rest()))
			}
			return results, nil
		}
		r := Result{Type: h.Type}
		switch h.Type {
		case jute.OpError:
			r.Code = jute.ErrCode(d.Int())
			if r.Code != h.Err {
				return results, fmt.Errorf("wire: multi result says %d and %d", h.Err, r.Code)
			}
		case jute.OpCreate:
			r.Path, _ = d.String()
		case jute.OpCreate2:
			r.Path, _ = d.String()
			r.Stat = d.Stat()
		case jute.OpSetData:
			r.Stat = d.Stat()
		case jute.OpGetData:
			r.Data = d.Buffer()
			r.Stat = d.Stat()
		case jute.OpGetChildren:
			r.Children, _ = d.Strings()
		case jute.OpDelete, jute.OpCheck:
		default:
			return results, fmt.Errorf("wire: multi result of type %v", h.Type)
		}
		if h.Type != jute.OpError && h.Err != jute.OK {
			return results, fmt.Errorf("wire: multi result of type %v with code %d", h.Type, h.Err)
		}
		results = append(results, r)
	}
}
