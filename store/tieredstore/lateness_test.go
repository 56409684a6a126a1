package tieredstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/bench/benchtest"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/redisstore"
)

// BenchmarkLateness says how late handlers start, with 1,000 tasks a second on servers
// that sync: through the window, and with each of the two stores alone. Take
// -benchtime 10000x for ten seconds.
func BenchmarkLateness(b *testing.B) {
	testserver.Need(b, "mariadb")
	testserver.Need(b, "redis-server")
	m := testserver.MariaDB(b, &testserver.MariaDBOptions{Config: []string{"--innodb-buffer-pool-size=512M"}})
	r := testserver.Redis(b, nil)
	opts := &duetime.ClientOptions{Logger: quiet()}
	for name, open := range map[string]func(b *testing.B) store.Store{
		"tiered": func(b *testing.B) store.Store {
			p := &pair{url: database(b, m), redis: r.Addr, prefix: "own"}
			return p.openForSuite(b)
		},
		"mysql": func(b *testing.B) store.Store {
			st, err := (&pair{url: database(b, m)}).openCold()
			if err != nil {
				b.Fatal(err)
			}
			return st
		},
		"redis": func(b *testing.B) store.Store {
			st, err := redisstore.Open(b.Context(), &redisstore.Options{Addrs: []string{r.Addr}})
			if err != nil {
				b.Fatal(err)
			}
			return st
		},
	} {
		for _, before := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/scheduled-before=%v", name, before), func(b *testing.B) {
				client := duetime.NewClient(open(b), opts)
				defer client.Close()
				benchtest.Lateness{Producing: client, Consuming: client, Rate: 1000, Before: before, Least: 10 * time.Millisecond}.Run(b)
			})
		}
	}
}
