package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// freePort is one that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// process is a server in a temporary folder.
type process struct {
	*testserver.Process
	addr string
	dir  string
}

func (p *process) end() {
	p.Close()
	_ = os.RemoveAll(p.dir)
}

// startServer starts a program that listens on a free port. prepare may write into
// the folder; it returns the command.
func startServer(prepare func(dir string, port int) (testserver.Command, error)) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "duetime-compare-")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	command, err := prepare(dir, port)
	if err == nil {
		command.Dir = dir
		command.Ready = func() error {
			conn, err := net.DialTimeout("tcp", p.addr, time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}
		p.Process, err = testserver.StartProcess(command)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

// startBeanstalkd: without arguments it keeps jobs in memory alone.
func startBeanstalkd(args ...string) (*process, error) {
	return startServer(func(dir string, port int) (testserver.Command, error) {
		all := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port)}
		for _, a := range args {
			if a == "-b" {
				all = append(all, "-b", dir)
				continue
			}
			all = append(all, a)
		}
		return testserver.Command{Path: "beanstalkd", Args: all}, nil
	})
}

// postgresPrograms is where Debian keeps what PATH does not lead to.
func postgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		path, err := exec.LookPath("postgres")
		if err != nil {
			return "", fmt.Errorf("postgres is not installed here (apt-get install postgresql)")
		}
		return filepath.Dir(path), nil
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// startPostgres starts PostgreSQL with buffers as large as those of MariaDB here.
// Commits are synced, as they are by default.
func startPostgres() (*process, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	return startServer(func(dir string, port int) (testserver.Command, error) {
		// It refuses to run as root.
		var as []string
		if os.Getuid() == 0 {
			u, err := user.Lookup("postgres")
			if err != nil {
				return testserver.Command{}, err
			}
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			if err := os.Chown(dir, uid, gid); err != nil {
				return testserver.Command{}, err
			}
			as = []string{"setpriv", "--reuid=" + u.Uid, "--regid=" + u.Gid, "--clear-groups"}
		}
		command := func(args ...string) []string { return append(append([]string{}, as...), args...) }
		data := filepath.Join(dir, "data")
		init := command(filepath.Join(programs, "initdb"), "-D", data, "-A", "trust", "-U", "postgres")
		if out, err := exec.Command(init[0], init[1:]...).CombinedOutput(); err != nil {
			return testserver.Command{}, fmt.Errorf("initdb: %w\n%s", err, out)
		}
		serve := command(filepath.Join(programs, "postgres"), "-D", data, "-p", strconv.Itoa(port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+dir,
			"-c", "shared_buffers=1GB", "-c", "max_connections=200", "-c", "max_wal_size=4GB")
		return testserver.Command{Path: serve[0], Args: serve[1:]}, nil
	})
}

// startMariaDB starts MariaDB as a server is set up that does something: with room
// in memory. Commits are synced.
func startMariaDB() (*testserver.MariaDBServer, error) {
	return testserver.StartMariaDB(&testserver.MariaDBOptions{Config: []string{
		"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--max-connections=200",
	}})
}

// startDuetime builds the program and has it serve an embedded store.
func startDuetime(ctx context.Context) (*process, error) {
	return startServer(func(dir string, port int) (testserver.Command, error) {
		program := filepath.Join(dir, "duetime")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/duetime/duetime/cmd/duetime")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		// The program's own module has what it needs; this one need not.
		root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/duetime/duetime").Output()
		if err != nil {
			return testserver.Command{}, fmt.Errorf("where duetime is: %w", err)
		}
		build.Dir = strings.TrimSpace(string(root))
		if out, err := build.CombinedOutput(); err != nil {
			return testserver.Command{}, fmt.Errorf("building duetime: %w\n%s", err, out)
		}
		return testserver.Command{Path: program, Args: []string{
			"serve", "--listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "--store", "embedded:" + filepath.Join(dir, "tasks"),
		}}, nil
	})
}
