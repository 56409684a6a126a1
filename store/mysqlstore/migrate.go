package mysqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// migrateWait is how long to wait for another process that is changing the tables.
const migrateWait = 60 * time.Second

// migrate brings the tables to the version that this program knows. Several
// processes may do so at once: one does it and the others wait. Each migration
// may be repeated, as one that was broken off in the middle will be: the server
// commits every statement of this kind by itself.
func (s *Store) migrate(ctx context.Context) error {
	steps, err := files.ReadDir("migrations")
	if err != nil {
		return err
	}
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = step.Name()
	}
	slices.Sort(names)
	if v, err := s.schemaVersion(ctx); err != nil || v == len(names) {
		return err // nothing to do: no right to make tables is needed
	} else if v > len(names) {
		return tooNew(v, len(names))
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	lock := fmt.Sprintf("duetime:%x", sha256.Sum256([]byte(s.database)))[:60]
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT GET_LOCK('%s', %d)", lock, int(migrateWait.Seconds()))).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another process has been changing duetime's tables in database %q for %v: look with SHOW PROCESSLIST what it waits for", s.database, migrateWait)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK('"+lock+"')") }()
	if _, err := conn.ExecContext(ctx, withTables("CREATE TABLE IF NOT EXISTS {meta} (name VARBINARY(32) NOT NULL PRIMARY KEY, value VARBINARY(64) NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC", s.database)); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, withTables(fmt.Sprintf("INSERT IGNORE INTO {meta} (name, value) VALUES ('store', '%016x%016x')", rand.Uint64(), rand.Uint64()), s.database)); err != nil {
		return err
	}
	version, err := s.schemaVersion(ctx)
	if err != nil {
		return err
	}
	if version > len(names) {
		return tooNew(version, len(names))
	}
	for i := version; i < len(names); i++ {
		text, err := files.ReadFile(path.Join("migrations", names[i]))
		if err != nil {
			return err
		}
		for statement := range strings.SplitSeq(withTables(string(text), s.database), "\n--\n") {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("migration %s: %w", names[i], err)
			}
		}
		if _, err := conn.ExecContext(ctx, withTables(fmt.Sprintf("REPLACE INTO {meta} (name, value) VALUES ('version', '%d')", i+1), s.database)); err != nil {
			return err
		}
	}
	return nil
}

func tooNew(found, known int) error {
	return fmt.Errorf("the tables in this database are at version %d, this program knows versions up to %d: use a newer duetime", found, known)
}

// schemaVersion is 0 where there are no tables.
func (s *Store) schemaVersion(ctx context.Context) (int, error) {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.database)+"' AND table_name = 'duetime_meta'").Scan(&n)
	if err != nil || n == 0 {
		return 0, err
	}
	var version string
	err = s.db.QueryRowContext(ctx, withTables("SELECT value FROM {meta} WHERE name = 'version'", s.database)).Scan(&version)
	if err == sql.ErrNoRows {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if n, err = strconv.Atoi(version); err != nil {
		return 0, fmt.Errorf("%w: the table duetime_meta says that the version of the tables is %q", store.ErrCorrupt, version)
	}
	return n, nil
}
