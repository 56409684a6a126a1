package mysqlstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// minPacket is the least max_allowed_packet: the largest task, every byte of it
// escaped, and what goes with it.
const minPacket = 4 << 20

// server is what matters of a server.
type server struct {
	version    string
	maxPacket  int
	durability string
}

// inspect refuses servers that can not be used, with what to change.
func (s *Store) inspect(ctx context.Context) (*server, error) {
	var v server
	if err := s.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&v.version); err != nil {
		return nil, err
	}
	if err := checkVersion(v.version); err != nil {
		return nil, err
	}
	set, err := s.variables(ctx, "read_only", "innodb_read_only", "log_bin", "binlog_format", "max_allowed_packet", "innodb_flush_log_at_trx_commit", "sync_binlog")
	if err != nil {
		return nil, err
	}
	if isOn(set["read_only"]) || isOn(set["innodb_read_only"]) {
		return nil, fmt.Errorf("the server is read-only, as a replica is: give the address of the primary, or set read_only to OFF if this is the one")
	}
	if isOn(set["log_bin"]) && strings.EqualFold(set["binlog_format"], "STATEMENT") {
		return nil, fmt.Errorf("the server has binlog_format=STATEMENT, with which it refuses transactions at READ COMMITTED: set binlog_format to ROW or MIXED")
	}
	if v.maxPacket, err = strconv.Atoi(set["max_allowed_packet"]); err != nil {
		return nil, fmt.Errorf("the server's max_allowed_packet is %q", set["max_allowed_packet"])
	}
	if v.maxPacket < minPacket {
		return nil, fmt.Errorf("the server's max_allowed_packet is %d bytes: set it to %d or more, or the largest tasks do not fit", v.maxPacket, minPacket)
	}
	v.durability = durability(set["innodb_flush_log_at_trx_commit"], isOn(set["log_bin"]), set["sync_binlog"])
	return &v, nil
}

func isOn(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

// variables reads settings of the server, as our sessions have them. One that a
// server does not have is left out: later versions drop some.
func (s *Store) variables(ctx context.Context, names ...string) (map[string]string, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	set := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		set[strings.ToLower(name)] = value
	}
	return set, rows.Err()
}

var numbers = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)

// checkVersion refuses servers without SKIP LOCKED.
func checkVersion(version string) error {
	if strings.Contains(version, "TiDB") {
		return fmt.Errorf("the server is TiDB (%s), which has no SKIP LOCKED: use MariaDB 10.6 or MySQL 8.0, or a later one", version)
	}
	text := strings.TrimPrefix(version, "5.5.5-") // what MariaDB writes before its version for old clients
	m := numbers.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("the server calls itself %q, which says no version: MariaDB 10.6 or MySQL 8.0, or a later one, is needed", version)
	}
	at := func(i int) int { n, _ := strconv.Atoi(m[i]); return n }
	major, minor, patch := at(1), at(2), at(3)
	if strings.Contains(version, "MariaDB") {
		if major < 10 || major == 10 && minor < 6 {
			return fmt.Errorf("the server is MariaDB %d.%d, which has no SKIP LOCKED: MariaDB 10.6 or later is needed", major, minor)
		}
		return nil
	}
	if major < 8 || major == 8 && minor == 0 && patch < 1 {
		return fmt.Errorf("the server is MySQL %d.%d.%d, which has no SKIP LOCKED: MySQL 8.0.1 or later is needed", major, minor, patch)
	}
	return nil
}

// probe asks for SKIP LOCKED itself, as servers that speak MySQL's protocol have
// versions of their own making.
func (s *Store) probe(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, string(s.sql["queue_trylock"].fill(nil, 0)))
	if err != nil {
		return fmt.Errorf("the server does not know SKIP LOCKED, which MariaDB has from 10.6 and MySQL from 8.0.1 on: %w", err)
	}
	return nil
}

func durability(flush string, logBin bool, syncBinlog string) string {
	switch {
	case flush != "1":
		return fmt.Sprintf("the server writes its log about once a second (innodb_flush_log_at_trx_commit=%s): a crash of its machine may lose the last second", flush)
	case logBin && syncBinlog != "1":
		return fmt.Sprintf("committed and synced to the server's disk; its binary log is not synced (sync_binlog=%s), so replicas may miss the last transactions after a crash of its machine", syncBinlog)
	}
	return "committed and synced to the server's disk"
}
