package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// MariaDBOptions says how a MariaDB server is configured. nil means all defaults.
type MariaDBOptions struct {
	// Config is more arguments in the form of the command line, such as
	// "--default-time-zone=+05:45" or "--sql-mode=". They win over ours.
	Config []string
	// SQL is statements that run at every start, before anybody can connect.
	SQL []string
}

// A MariaDBServer is one mariadbd with a database of the name Database. The
// user is root, without a password.
type MariaDBServer struct {
	*Process
	// Addr is its host and port.
	Addr string
	// Socket is the path of its Unix socket.
	Socket string
	// Database is the name of an empty database.
	Database string
	// MySQL says that it is a mysqld of MySQL, and no MariaDB.
	MySQL bool
}

// MariaDB starts a MariaDB server that ends with the test. Where the environment
// variable DUETIME_MYSQLD has the path of a mysqld of MySQL, or where nothing else is
// installed, it is a MySQL server.
//
// Commits are synced to the disk, as they are by default, so Kill loses nothing
// that was committed.
func MariaDB(t testing.TB, opts *MariaDBOptions) *MariaDBServer {
	t.Helper()
	m, err := StartMariaDB(opts)
	return forTest(t, m, err)
}

// StartMariaDB is MariaDB outside a test. Whoever calls it must call Close.
func StartMariaDB(opts *MariaDBOptions) (m *MariaDBServer, err error) {
	if opts == nil {
		opts = &MariaDBOptions{}
	}
	err = withPorts(1, false, func(held *ports) error {
		m, err = startMariaDB(held, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func startMariaDB(held *ports, opts *MariaDBOptions) (*MariaDBServer, error) {
	program, err := findSQL()
	if err != nil {
		return nil, err
	}
	port := held.numbers[0]
	m := &MariaDBServer{Addr: addr(port), Database: "duetime", MySQL: program.mysql}
	p, err := startIn(held, func(dir string) (Command, error) {
		data := filepath.Join(dir, "data")
		if err := program.install(dir, data); err != nil {
			return Command{}, err
		}
		sql := "CREATE DATABASE IF NOT EXISTS " + m.Database + ";\n"
		for _, statement := range append(program.first(), opts.SQL...) {
			sql += statement + ";\n"
		}
		init := filepath.Join(dir, "init.sql")
		if err := os.WriteFile(init, []byte(sql), 0o600); err != nil {
			return Command{}, err
		}
		m.Socket = filepath.Join(dir, "socket")
		args := append([]string{"--no-defaults"}, asRoot()...)
		args = append(args,
			"--datadir="+data, "--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket="+m.Socket,
			"--pid-file="+filepath.Join(dir, "pid"), "--tmpdir="+dir, "--init-file="+init,
			"--skip-name-resolve", "--max-connections=300",
			"--innodb-buffer-pool-size=128M",
		)
		args = append(args, program.extra()...)
		return Command{Path: program.path, Args: append(args, opts.Config...), Dir: dir, Ready: m.ready}, nil
	})
	if err != nil {
		return nil, err
	}
	m.Process = p
	return m, nil
}

// logFileSize is small, because writing it is most of what a new server does.
const logFileSize = "--innodb-log-file-size=48M"

// asRoot: mariadbd refuses to run as root unless it is told so.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// installMariaDB makes a data folder. It takes less than a second, so it is done
// for each server, and no folder has to be kept for the next.
func installMariaDB(dir, data string) error {
	install, err := find("mariadb-install-db")
	if err != nil {
		return err
	}
	args := append([]string{"--no-defaults"}, asRoot()...)
	args = append(
		args, "--datadir="+data, "--tmpdir="+dir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", logFileSize,
	)
	cmd := exec.Command(install, args...)
	cmd.Dir = dir
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testserver: %s: %w\n%s", install, err, out)
	}
	return nil
}

// ready is content when the server greets as MySQL servers do.
func (m *MariaDBServer) ready() error {
	conn, err := net.DialTimeout("tcp", m.Addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var greeting [5]byte // the length and number of the packet, and the version of the protocol
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return err
	}
	if greeting[4] != 10 {
		return fmt.Errorf("it greets with %x", greeting)
	}
	return nil
}

// DSN is how the Go driver github.com/go-sql-driver/mysql is told to connect:
// root@tcp(127.0.0.1:port)/duetime. Parameters are appended by the caller.
func (m *MariaDBServer) DSN() string { return fmt.Sprintf("root@tcp(%s)/%s", m.Addr, m.Database) }
