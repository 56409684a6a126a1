package testserver_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

func query(t *testing.T, m *testserver.MariaDBServer, sql string) string {
	t.Helper()
	out, err := exec.Command("mariadb", "--no-defaults", "--user=root", "--protocol=tcp", "--host=127.0.0.1",
		"--port="+m.Addr[strings.LastIndex(m.Addr, ":")+1:], "--batch", "--skip-column-names", "--execute="+sql, m.Database).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "mariadb")
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{
		Config: []string{"--default-time-zone=+05:45"},
		SQL:    []string{"CREATE TABLE IF NOT EXISTS duetime.t (a INT PRIMARY KEY)"},
	})
	query(t, m, "INSERT INTO t VALUES (7)")
	m.Kill()
	if m.Running() {
		t.Error("it runs after a kill")
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, m, "SELECT a, @@time_zone FROM t"); got != "7\t+05:45" {
		t.Errorf("after a kill: %q", got)
	}
}
