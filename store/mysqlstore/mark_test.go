package mysqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// A claim may take over into the turn what the tally tells of while somebody is
// reading the two, which is not one step: what waits is seen nevertheless. Here nobody
// can read the tally until that has happened.
func TestTallyIsFoldedWhileItIsRead(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(ctx context.Context, s *Store) (first time.Time, err error){
		"list": func(ctx context.Context, s *Store) (first time.Time, err error) {
			places, _, err := s.ListPlaces(ctx, "orders", store.StateScheduled, store.Place{}, time.Now().Add(24*time.Hour), 10)
			if len(places) > 0 {
				first = places[0].At
			}
			return first, err
		},
		"heads": func(ctx context.Context, s *Store) (first time.Time, err error) {
			q, err := s.findOne(ctx, "orders")
			if err != nil {
				return first, err
			}
			_, heads, err := s.heads(ctx, []*queue{q})
			if err == nil {
				first = milli(heads[0].waiting.at)
			}
			return first, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readWhileFolding(t, look)
		})
	}
}

func readWhileFolding(t *testing.T, look func(ctx context.Context, s *Store) (time.Time, error)) {
	ctx := t.Context()
	s := open(t, database(t), nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	schedule := func(id string, delay time.Duration) time.Time {
		t.Helper()
		r, err := s.Schedule(ctx, []store.NewTask{{Queue: "orders", ID: id, Delay: delay}})
		must(err)
		return r[0].Due
	}
	schedule("now", 0)
	schedule("later", time.Hour)
	_, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 1, Lease: 24 * time.Hour}})
	must(err) // the turn is at the later one now
	want := schedule("sooner", 10*time.Minute)

	conn, err := admin(t, serverForAll(t), s.database).Conn(ctx)
	must(err)
	defer conn.Close()
	run := func(c interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, text string, args ...any,
	) int64 {
		t.Helper()
		r, err := c.ExecContext(ctx, text, args...)
		must(err)
		n, _ := r.RowsAffected()
		return n
	}
	other := admin(t, serverForAll(t), s.database)
	run(conn, "LOCK TABLES duetime_tally WRITE")
	type answer struct {
		first time.Time
		err   error
	}
	done := make(chan answer)
	go func() {
		first, err := look(ctx, s)
		done <- answer{first, err}
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var waiting int
		must(other.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND state LIKE 'Waiting for table%'", s.database).Scan(&waiting))
		if waiting == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits for the lock")
		}
	}
	if run(other, "UPDATE duetime_turn SET pos_at = ?, pos_seq = 0", want.UnixMilli()) != 1 || run(conn, "UPDATE duetime_tally SET early = ?", int64(never)) == 0 {
		t.Fatal("nothing was folded")
	}
	run(conn, "UNLOCK TABLES")
	got := <-done
	if got.err != nil || !got.first.Equal(want) {
		t.Errorf("the first that waits is at %v, want %v (%v)", got.first, want, got.err)
	}
}
