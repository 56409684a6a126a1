package mysqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/storeurl"
	"github.com/duetime/duetime/store"
)

// session is what each of our connections is set to, so that nothing depends on
// how the server or its other users like theirs. Strings are bytes (binary), the
// escapes in them are as appendLiteral writes them (no NO_BACKSLASH_ESCAPES), what
// does not fit is an error and never cut (STRICT_ALL_TABLES). Locks are not waited
// for as long as by default, because we try again ourselves. A connection that
// says nothing for a minute is ended by the server: a process that was stopped in
// the middle of a transaction holds its locks no longer than that.
const session = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = 1," +
	" sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, unique_checks = 1," +
	" innodb_lock_wait_timeout = 2, lock_wait_timeout = 10, wait_timeout = 60, net_write_timeout = 60;" +
	" SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET NAMES binary"

// idleTime is after how long we end a connection ourselves, before the server
// does.
const idleTime = 30 * time.Second

// connector makes connections with our session settings.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, session, nil); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("settings of the session: %w", err)
	}
	return conn, nil
}

// parseURL reads mysql://user:password@host:port/database?parameters.
func parseURL(rawURL string) (*mysql.Config, error) {
	refuse := func(problem string, args ...any) (*mysql.Config, error) {
		return nil, store.NewInputError("store", storeurl.Shown(rawURL), problem, args...)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's error quotes the URL, password included.
		return refuse("is no URL: write mysql://USER:PASSWORD@HOST:PORT/DATABASE, with %s for @, %s for /, %s for ? and %s for # in the password", "%40", "%2F", "%3F", "%23")
	}
	if u.Scheme != "mysql" {
		return refuse("must begin with mysql://")
	}
	c := mysql.NewConfig()
	c.DBName = strings.TrimPrefix(u.Path, "/")
	if c.DBName == "" || strings.Contains(c.DBName, "/") {
		return refuse("names no database: write mysql://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if c.Addr == "" {
		c.Addr = "127.0.0.1"
	}
	if u.Port() == "" {
		c.Addr = strings.TrimSuffix(c.Addr, ":") + ":3306"
	}
	c.Timeout = 10 * time.Second
	for name, values := range u.Query() {
		value := values[len(values)-1]
		switch name {
		case "socket":
			c.Net, c.Addr = "unix", value
		case "tls":
			switch value {
			case "true", "skip-verify", "preferred", "false":
				c.TLSConfig = value
			default:
				return refuse("tls is %q, must be true, skip-verify, preferred or false", value)
			}
		case "connect_timeout":
			if c.Timeout, err = time.ParseDuration(value); err != nil || c.Timeout <= 0 {
				return refuse("connect_timeout is %q, must be a duration such as 10s", value)
			}
		case "connections": // for Options.Connections
		default:
			return refuse("has an unknown parameter %q; known are socket, tls, connect_timeout and connections", name)
		}
	}
	c.MultiStatements = true // a transaction takes two packets instead of a dozen
	c.RejectReadOnly = true  // after a failover, connect again instead of failing for ever
	c.MaxAllowedPacket = 0   // ask the server
	c.Collation = "binary"   // see session
	c.Logger = silent{}      // errors are returned, there is no need to print them
	c.CheckConnLiveness = true
	return c, nil
}

func connectionsIn(rawURL string) (int, error) {
	u, err := url.Parse(rawURL)
	if err != nil || !u.Query().Has("connections") {
		return 0, nil
	}
	n, err := strconv.Atoi(u.Query().Get("connections"))
	if err != nil || n < minConnections || n > math.MaxInt16 {
		return 0, store.NewInputError("store", storeurl.Shown(rawURL), "connections is %q, must be %d or more", u.Query().Get("connections"), minConnections)
	}
	return n, nil
}

type silent struct{}

func (silent) Print(...any) {}

// Numbers of the server's errors.
const (
	errDuplicate   = 1062
	errLockTimeout = 1205
	errDeadlock    = 1213
	errChanged     = 1020 // MariaDB: a row changed since it was read
	errDiskFull    = 1021
	errTableFull   = 1114
	errEngine      = 1030 // "Got error 28", and others
)

func serverError(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}

// isFull reports whether the server has no room. It has undone the statement.
func isFull(err error) bool {
	if serverError(err, errDiskFull, errTableFull) {
		return true
	}
	return serverError(err, errEngine) && strings.Contains(err.Error(), "28")
}

// DataSource is the name by which the driver (github.com/go-sql-driver/mysql) opens
// the database of a URL as Open takes it: for a pool of a program's own, from which
// come the transactions for ScheduleTx.
//
//	name, err := mysqlstore.DataSource(url)
//	db, err := sql.Open("mysql", name)
func DataSource(rawURL string) (string, error) {
	ours, err := parseURL(rawURL)
	if err != nil {
		return "", err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = ours.User, ours.Passwd, ours.Net, ours.Addr, ours.DBName
	c.Timeout, c.TLSConfig = ours.Timeout, ours.TLSConfig
	return c.FormatDSN(), nil
}
