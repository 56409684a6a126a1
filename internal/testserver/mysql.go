package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// mysqlVariable is the environment variable with the path of a mysqld of MySQL that
// is to be started where MariaDB would be.
const mysqlVariable = "DUETIME_MYSQLD"

// A sqlServer is the program that MariaDB starts.
type sqlServer struct {
	path  string
	mysql bool // MySQL, and not MariaDB
}

// findSQL returns what the environment says; else MariaDB; else MySQL, where only
// that is installed.
func findSQL() (sqlServer, error) {
	if path := os.Getenv(mysqlVariable); path != "" {
		path, err := find(path)
		return sqlServer{path, true}, err
	}
	path, err := find("mariadbd")
	if err == nil {
		return sqlServer{path, false}, nil
	}
	if path, err := find("mysqld"); err == nil {
		out, err := exec.Command(path, "--no-defaults", "--version").Output()
		if err == nil && !strings.Contains(string(out), "MariaDB") {
			return sqlServer{path, true}, nil
		}
	}
	return sqlServer{}, err
}

// NeedMariaDB skips the test where MariaDB can not be started, nor MySQL in its place;
// see [Need].
func NeedMariaDB(t testing.TB) {
	t.Helper()
	if _, err := findSQL(); err != nil {
		missing(t, err)
	}
}

// HaveMariaDB reports whether MariaDB can be started, or MySQL in its place.
func HaveMariaDB() bool {
	_, err := findSQL()
	return err == nil
}

// install makes a data folder. It takes a second, and a few with MySQL, so it is done
// for each server, and no folder has to be kept for the next.
func (s sqlServer) install(dir, data string) error {
	if !s.mysql {
		return installMariaDB(dir, data)
	}
	args := append([]string{"--no-defaults", "--initialize-insecure"}, asRoot()...)
	cmd := exec.Command(s.path, append(args, "--datadir="+data, "--tmpdir="+dir, mysqlLogSize, "--secure-file-priv=NULL")...)
	cmd.Dir = dir
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testserver: %s: %w\n%s", s.path, err, out)
	}
	return nil
}

// mysqlLogSize is logFileSize in MySQL.
const mysqlLogSize = "--innodb-redo-log-capacity=96M"

// extra are the arguments that the two do not share.
func (s sqlServer) extra() []string {
	if s.mysql {
		// MariaDB has no second protocol, and no binary log unless it is told to.
		return []string{mysqlLogSize, "--mysqlx=OFF", "--disable-log-bin", "--secure-file-priv=NULL"}
	}
	return []string{logFileSize}
}

// first are the statements without which nobody could connect.
func (s sqlServer) first() []string {
	if s.mysql {
		// It makes a root for its socket only.
		return []string{"CREATE USER IF NOT EXISTS root@'127.0.0.1'", "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION"}
	}
	return nil
}
