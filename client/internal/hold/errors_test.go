package hold

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Errors of package zk become errors of this package. The error of a context that ended includes the cause.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	must.OK(t, PublicErr(ctx, nil))
	for _, x := range []struct{ err, want error }{
		{zk.ErrNoAuth, ErrNoAuth}, {zk.ErrAuthFailed, ErrNoAuth}, {zk.ErrInvalid, recipe.ErrInvalid},
		{zk.ErrQuotaExceeded, zk.ErrQuotaExceeded}, {zk.ErrNoNode, zk.ErrNoNode},
		{context.Canceled, context.Canceled},
	} {
		err := PublicErr(ctx, fmt.Errorf("it: %w", x.err))
		expect.Is(t, err, x.want, "%v", x.err)
		expect.Is(t, err, x.err)
	}
	expect.Has(t, PublicErr(ctx, zk.ErrQuotaExceeded).Error(), "client: quota exceeded")
	late := fmt.Errorf("%w within a second", ErrNotAcquired)
	loss := Loss{Path: "/a", Reason: Removed}
	for _, x := range []struct {
		cause    error
		is       []error
		isNot    error
		readable string
	}{
		{nil, []error{context.Canceled}, ErrLost, "context canceled"},
		{zk.ErrClosed, []error{zk.ErrClosed}, context.Canceled, "zk: closed"},
		{late, []error{ErrNotAcquired, context.Canceled}, ErrLost,
			"client: lock not acquired within a second: context canceled"},
		{loss, []error{ErrLost, context.Canceled}, ErrNotAcquired,
			"context canceled: client: lock /a lost: node removed"},
	} {
		ended, end := context.WithCancelCause(ctx)
		end(x.cause)
		for _, err := range []error{EndOf(ended), PublicErr(ended, fmt.Errorf("it: %w", context.Canceled))} {
			for _, want := range x.is {
				expect.Is(t, err, want)
			}
			expect.That(t, !errors.Is(err, x.isNot), "%v is %v", err, x.isNot)
			expect.Equal(t, err.Error(), x.readable)
		}
		expect.Is(t, PublicErr(ended, zk.ErrNoNode), zk.ErrNoNode)
	}
	must.OK(t, ErrorAt("/a", nil))
	for _, x := range []struct{ in, out string }{
		{"client: x", "client: /a: x"}, {"client: /a is x", "client: /a is x"}, {"x: client: y",
			"client: /a: x: y"},
		{"zk: b /a: zk: c", "client: zk: b /a: c"}, {"x", "client: /a: x"},
	} {
		err := errors.New(x.in)
		expect.That(t, errors.Is(ErrorAt("/a", err), err), "%s", x.in)
		expect.Equal(t, ErrorAt("/a", err).Error(), x.out)
	}
}
