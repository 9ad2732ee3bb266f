package fence

import (
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// row is a table row as the SQL form of the package documentation needs it.
type row struct {
	mu      sync.Mutex
	balance int
	fence   Token
}

// update is, under any isolation level that makes one statement atomic,
//
//	UPDATE account SET balance = :b, fence = :t WHERE id = :id AND fence <= :t
//
// and returns the number of rows updated.
func (r *row) update(b int, t Token) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fence > t {
		return 0
	}
	r.balance, r.fence = b, t
	return 1
}

func TestSQLFormRefusesFormerHolders(t *testing.T) {
	var r row
	for i, step := range []struct {
		b    int
		t    Token
		rows int
	}{
		{100, 5, 1}, // first holder
		{110, 5, 1}, // writes again
		{200, 8, 1}, // second holder
		{120, 5, 0}, // the first, woken from a long pause
		{210, 8, 1},
	} {
		if n := r.update(step.b, step.t); n != step.rows {
			t.Errorf("step %d: %d rows, want %d", i, n, step.rows)
		}
	}
	expect.That(t, r.balance == 210 && r.fence == 8, "the row holds %d under %d", r.balance, r.fence)
}

// The statement and a Gate take the same decisions, and the statement takes
// them together with the write.
func TestSQLFormAgreesWithTheGate(t *testing.T) {
	var r row
	var g Gate
	for _, tok := range []Token{3, 3, 1, 7, 6, 7, 2, 9, 8} {
		admitted := g.Admit("/r", Exclusive, tok) == nil
		if updated := r.update(0, tok) == 1; updated != admitted {
			t.Errorf("token %d: statement %v, gate %v", tok, updated, admitted)
		}
	}
}
