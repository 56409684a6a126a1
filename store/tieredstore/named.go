package tieredstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

// named gives each cold store windows of its own in a hot one: two that share one,
// with queues of the same name, would take the other's tasks out of its windows. The
// names can not be those of queues either, which have no slash.
type named struct {
	hot Hot
	id  string // the cold store's
}

func (n *named) queue(name string) string { return n.id + "/" + name }

func (n *named) Take(ctx context.Context, queue string, now, until time.Time, limit int, again time.Time) (store.WindowTaken, error) {
	return n.hot.Take(ctx, n.queue(queue), now, until, limit, again)
}

func (n *named) Apply(ctx context.Context, queue string, places []store.Place, now time.Time) (store.Window, error) {
	return n.hot.Apply(ctx, n.queue(queue), places, now)
}

func (n *named) Load(ctx context.Context, queue string, generation int64, places []store.Place, now time.Time, mend bool) (store.Window, int, error) {
	return n.hot.Load(ctx, n.queue(queue), generation, places, now, mend)
}

func (n *named) Begin(ctx context.Context, queue string, generation int64, edge time.Time, fresh bool) (store.Window, error) {
	return n.hot.Begin(ctx, n.queue(queue), generation, edge, fresh)
}

func (n *named) End(ctx context.Context, queue string, generation int64, loaded time.Time) (store.Window, error) {
	return n.hot.End(ctx, n.queue(queue), generation, loaded)
}

func (n *named) Tend(ctx context.Context, queue, node string, lease time.Duration) (store.Window, bool, int64, error) {
	return n.hot.Tend(ctx, n.queue(queue), node, lease)
}

func (n *named) Reset(ctx context.Context, queue string) error {
	return n.hot.Reset(ctx, n.queue(queue))
}

func (n *named) Ping(ctx context.Context) error { return n.hot.Ping(ctx) }

func (n *named) Wake(queue string) (<-chan struct{}, func()) { return n.hot.Wake(n.queue(queue)) }

func (n *named) Close() error { return n.hot.Close() }
