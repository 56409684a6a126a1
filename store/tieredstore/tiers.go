package tieredstore

import (
	"context"
	"time"

	"github.com/duetime/duetime/store"
)

// Cold is the store that has the truth: one that can say where tasks stand, and
// lease them by that. mysqlstore.Store is one.
type Cold interface {
	store.Store
	store.Importer

	// Places says where tasks stand, in the order of the keys.
	Places(ctx context.Context, keys []store.Key) ([]store.Place, error)
	// ListPlaces returns places of tasks in one state (StateScheduled, which has
	// ready ones too, or StateLeased), in their order, after a place and until an
	// instant.
	ListPlaces(ctx context.Context, queue string, state store.State, after store.Place, until time.Time, limit int) ([]store.Place, time.Time, error)
	// ClaimPlaces is Claim among some tasks, by their Place.Seq, request.Ahead
	// included. Leases that have ended are ended. With a negative room nothing is handed out.
	ClaimPlaces(ctx context.Context, request store.ClaimRequest, seqs []uint64, room int) (store.PlacesClaimed, error)
	// Identity tells this store from every other, for as long as it is there.
	Identity() string
	// PlaceOf reads the place of a leased task, without its time, from its receipt.
	PlaceOf(r store.Receipt) (store.Place, bool)
}

// Hot is what keeps windows. All of a window may be lost at any time; what it says
// must be what was put in, or older. redisstore.Windows is one.
type Hot interface {
	// Take takes what is due until an instant and notes it as leased until again, or
	// as much later as it is due after now; or, where there are any, leases that have ended by now, whose tasks may be older.
	// With a limit of 0 it only looks.
	Take(ctx context.Context, queue string, now, until time.Time, limit int, again time.Time) (store.WindowTaken, error)
	// Apply makes a window say what places say, as far as they are within its edge.
	Apply(ctx context.Context, queue string, places []store.Place, now time.Time) (store.Window, error)
	// Load puts in what is missing, in a window of that generation only; with mend
	// it also moves what ought to be claimable now and is in for later.
	Load(ctx context.Context, queue string, generation int64, places []store.Place, now time.Time, mend bool) (store.Window, int, error)
	// Begin moves the edge on; with fresh it begins a new window, if there is none of
	// that generation or later.
	Begin(ctx context.Context, queue string, generation int64, edge time.Time, fresh bool) (store.Window, error)
	// End notes up to where a window is loaded.
	End(ctx context.Context, queue string, generation int64, loaded time.Time) (store.Window, error)
	// Tend says what a window is, how many are in it, and whether node is to look
	// after it. An empty node only asks.
	Tend(ctx context.Context, queue, node string, lease time.Duration) (w store.Window, mine bool, count int64, err error)
	// Reset forgets a window.
	Reset(ctx context.Context, queue string) error
	// Ping asks whether the store does all of this.
	Ping(ctx context.Context) error
	// Wake ticks when something may be claimable earlier than it was.
	Wake(queue string) (<-chan struct{}, func())
	Close() error
}
