package take

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// alone() returns an error if a client holds or awaits a lock of another kind on the path. The argument
// `names` is the list of the path's children.
func alone(ctx context.Context, e *session.Epoch, path string, own turns.Use, names []string) error {
	var flight []string
	for name, u := range own.Rivals(names) {
		child := recipe.Join(path, name)
		if u != turns.UsePermits {
			if flight = append(flight, child); len(flight) == rivalsAtOnce {
				if err := noneLives(ctx, e, flight); err != nil {
					return err
				}
				flight = flight[:0]
			}
			continue
		}
		permits, err := e.Children(ctx, child)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		for _, p := range permits {
			if cont, _, ok := recipe.ParseName(p); ok && cont.Kind == recipe.RoleLease {
				return anotherKind(child)
			}
		}
	}
	return noneLives(ctx, e, flight)
}

func anotherKind(path string) error {
	return fmt.Errorf("%w: %s belongs to another kind of lock", recipe.ErrMixedLayout, path)
}

// rivalsAtOnce is how many nodes noneLives looks at in one flight of requests. A directory may have thousands
// of lasting nodes that are named like contenders, and a contender looks at them before each grant.
const rivalsAtOnce = 256

// noneLives returns an error if one of the nodes belongs to a session. A lasting node is no contender.
func noneLives(ctx context.Context, e *session.Epoch, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	p := e.Conn().Pipe()
	replies := make([]*zk.Reply[*zk.Stat], len(paths))
	for i, path := range paths {
		replies[i] = p.Exists(path)
	}
	p.Send()
	for i, path := range paths {
		st, err := replies[i].Wait(ctx)
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		if st != nil && st.EphemeralOwner != 0 {
			return anotherKind(path)
		}
	}
	return nil
}

// aloneNow calls alone() for an attempt that has made its node. The argument `listed` is a list of the path's
// children, requested after the node was made. If it is nil, aloneNow lists the path.
func aloneNow(
	ctx context.Context, e *session.Epoch, path string, own turns.Use, listed *zk.Names,
) error {
	if listed == nil {
		names, err := e.Conn().Names(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		listed = &names
	}
	return alone(ctx, e, path, own, listed.List())
}
