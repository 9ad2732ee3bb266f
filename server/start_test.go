package server

import (
	"context"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/wire"
)

func TestStartServesOnTheAddressItTells(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	i, err := Start(ctx, Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0"})
	must(t, err)
	defer func() { must(t, i.Close(context.Background())) }()
	must(t, i.Ready(ctx))
	c, err := wire.Open(i.ClientAddr())
	must(t, err)
	defer c.Close()
	create(t, c, "/a", "", 0)
}
