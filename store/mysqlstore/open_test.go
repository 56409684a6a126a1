package mysqlstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest"
)

func TestVersions(t *testing.T) {
	for version, good := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true,
		"10.6.0-MariaDB":             true,
		"5.5.5-10.6.12-MariaDB-log":  true,
		"11.8.2-MariaDB-ubu2404":     true,
		"8.0.36":                     true,
		"8.0.1-dmr":                  true,
		"8.4.3":                      true,
		"9.1.0":                      true,
		"8.0.35-27 Percona":          true,
		"10.5.23-MariaDB":            false,
		"5.5.5-10.3.39-MariaDB":      false,
		"5.7.44-log":                 false,
		"8.0.0-dmr":                  false,
		"5.6.51":                     false,
		"8.0.11-TiDB-v7.5.0":         false,
		"something else":             false,
		"5.5.68-MariaDB":             false,
	} {
		err := checkVersion(version)
		if (err == nil) != good {
			t.Errorf("%s: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), "10.6") && !strings.Contains(err.Error(), "8.0") {
			t.Errorf("%s: %q does not say what is needed", version, err)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u:p@h:3307/shop":                     "u:p@tcp(h:3307)/shop",
		"mysql://u@h/shop":                            "u@tcp(h:3306)/shop",
		"mysql://u:p%40%2F@[::1]/shop":                "u:p@/@tcp([::1]:3306)/shop",
		"mysql://u@/shop?socket=/run/mysqld.sock":     "u@unix(/run/mysqld.sock)/shop",
		"mysql://u@h/shop?tls=true&connections=8":     "u@tcp(h:3306)/shop",
		"mysql://u@h/shop?connect_timeout=3s":         "u@tcp(h:3306)/shop",
		"mysql://u:secret@h":                          "names no database",
		"mysql://u:secret@h/a/b":                      "names no database",
		"mysql://u:secret@h/shop?charset=utf8":        "unknown parameter",
		"mysql://u:secret@h/shop?tls=yes":             "tls is",
		"mysql://u:secret@h/shop?connections=1":       "connections is",
		"mysql://u:secret%zz@h/shop":                  "is no URL",
		"postgres://u:secret@h/shop":                  "mysql://",
		"mysql://u:secret@h/shop?connect_timeout=-1s": "connect_timeout",
	} {
		name, err := DataSource(url)
		if err == nil {
			_, err = connectionsIn(url)
		}
		if err == nil {
			if !strings.HasPrefix(name, want) {
				t.Errorf("%s: %s, want %s…", url, name, want)
			}
			continue
		}
		var input *store.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want an input error that says %q", url, err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

// A server of its own, as Debian sets it up, with a binary log: it is refused while
// it is not fit to be used, and the parts of the suite that depend on settings pass.
func TestServersOwnSettings(t *testing.T) {
	t.Parallel()
	testserver.NeedMariaDB(t)
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: []string{
		"--log-bin", "--binlog-format=ROW", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
	}})
	db := admin(t, m, m.Database)
	url := "mysql://root@" + m.Addr + "/" + m.Database
	for _, c := range []struct{ set, back, want string }{
		{"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "read-only"},
		{"SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'", "binlog_format"},
		{"SET GLOBAL max_allowed_packet = 1048576", "SET GLOBAL max_allowed_packet = 16777216", "max_allowed_packet"},
	} {
		execute(t, db, c.set)
		s, err := Open(t.Context(), url, nil)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "set ") && !strings.Contains(err.Error(), "give ") {
			t.Errorf("%s: error %v, want one that says what to change", c.set, err)
		}
		execute(t, db, c.back)
	}
	for set, want := range map[string]string{
		"SET GLOBAL innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 1": "synced to the server's disk",
		"SET GLOBAL innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 0": "sync_binlog=0",
		"SET GLOBAL innodb_flush_log_at_trx_commit = 2, GLOBAL sync_binlog = 1": "last second",
	} {
		execute(t, db, set)
		s := open(t, url, nil)
		if got := s.Capabilities().Durability; !strings.Contains(got, want) {
			t.Errorf("%s: durability %q", set, got)
		}
	}
	storetest.RunOnly(t, storetest.Harness{Open: func(t testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		return &storetest.Instance{Store: openForSuite(t, databaseOn(t, m), &Options{now: clock.Now}), Advance: clock.Advance}
	}}, "payload", "hostile")
}

// Many processes may start at once on an empty database.
func TestOpenedByManyAtOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Open(context.Background(), url, &Options{Logger: quiet()})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Schedule(context.Background(), []store.NewTask{{Queue: "orders", ID: "1"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := open(t, url, nil)
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	recount(t, s)
	execute(t, s.db, withTables("UPDATE {meta} SET value = '99' WHERE name = 'version'", s.database))
	if _, err := Open(t.Context(), url, nil); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("tables of a newer version: %v", err)
	}
	execute(t, s.db, withTables("UPDATE {meta} SET value = '1' WHERE name = 'version'", s.database))

	// Who may not make tables can use those that are there.
	execute(t, s.db, "CREATE USER 'worker"+s.database+"'@'%' IDENTIFIED BY 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON "+s.database+".* TO 'worker"+s.database+"'@'%'")
	w := open(t, strings.Replace(url, "root@", "worker"+s.database+":secret@", 1), nil)
	if r, err := w.Claim(t.Context(), []store.ClaimRequest{{Queue: "orders", Max: 1}}); err != nil || len(r[0].Tasks) != 1 {
		t.Errorf("claim without the right to make tables: %v, %v", r, err)
	}
	// Wrong passwords and absent databases are told of without the password.
	for _, wrong := range []string{strings.Replace(url, "root@", "worker:hidden@", 1), url + "x"} {
		if _, err := Open(t.Context(), wrong, nil); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
