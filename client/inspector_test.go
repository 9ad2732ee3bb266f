package client

import (
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/must"
)

// Walk leaves out nodes that do not exist or may not be read.
func TestWalkPassesOverWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	l := lock(t, c.Mutex(d+"/a").Lock)
	must.Get(o.Create(d+"/hidden", nil, 0, []gozk.ACL{{Perms: gozk.PermDelete, Scheme: "world",
		ID: "anyone"}}))(t)
	var found []string
	look := func(q *recipe.Queue) error {
		found = append(found, q.Path)
		return nil
	}
	must.OK(t, c.Inspector().Walk(ctx, d, -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d+"/none", -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d+"/hidden", -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d, 0, look))
	must.List(t, found, []string{d + "/a"})
	must.OK(t, c.Inspector().Walk(ctx, d, 1, look))
	must.List(t, found, []string{d + "/a", d + "/a"})
	unlock(t, l)
	must.OK(t, o.Delete(d+"/hidden", -1))
}
