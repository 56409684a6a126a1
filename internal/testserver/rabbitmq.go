package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RabbitMQOptions says how a RabbitMQ server is configured. nil means all
// defaults.
type RabbitMQOptions struct {
	// Config is more lines of rabbitmq.conf, such as "heartbeat = 5".
	Config []string
	// Erlang is more arguments of the Erlang machine, such as
	// "-rabbit consumer_timeout 5000" for what rabbitmq.conf does not know.
	Erlang string
}

// A RabbitMQServer is one RabbitMQ node without plugins, and the Erlang port
// mapper that belongs to it alone.
type RabbitMQServer struct {
	*Process
	// Addr is the host and port for AMQP.
	Addr   string
	mapper *Process
	env    []string
}

// RabbitMQ starts a RabbitMQ server that ends with the test. The user guest may
// do everything. Starting takes some seconds, so tests of one package had better
// share one.
func RabbitMQ(t testing.TB, opts *RabbitMQOptions) *RabbitMQServer {
	t.Helper()
	r, err := StartRabbitMQ(opts)
	return forTest(t, r, err)
}

// StartRabbitMQ is RabbitMQ outside a test. Whoever calls it must call Close.
func StartRabbitMQ(opts *RabbitMQOptions) (r *RabbitMQServer, err error) {
	if opts == nil {
		opts = &RabbitMQOptions{}
	}
	err = withPorts(3, false, func(held *ports) error {
		r, err = startRabbitMQ(held, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// rabbitProgram finds a program of RabbitMQ. What Debian has on $PATH is a
// wrapper that changes the user and the folders, and serves the system's node
// only, so the place of the real one comes first.
func rabbitProgram(name string) (string, error) {
	if path, err := find(filepath.Join("/usr/lib/rabbitmq/bin", name)); err == nil {
		return path, nil
	}
	return find(name)
}

// withoutPlugins makes a folder that looks like RabbitMQ's own and lacks its
// plugins, and returns the path of program in it. Erlang looks for every module
// in every folder, which is most of what a start does: with the fifty folders of
// plugins that are never used it takes two to three times as long. Where RabbitMQ
// lies otherwise than expected, program is left as it is.
func withoutPlugins(program, dir string) string {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return program
	}
	home := filepath.Dir(filepath.Dir(real))
	apps, err := os.ReadDir(filepath.Join(home, "plugins"))
	if err != nil {
		return program
	}
	bare := filepath.Join(dir, "rabbitmq")
	if err := os.MkdirAll(filepath.Join(bare, "plugins"), 0o700); err != nil {
		return program
	}
	links := []string{"sbin", "escript"}
	found := false
	for _, app := range apps {
		name := app.Name()
		found = found || strings.HasPrefix(name, "rabbit-")
		if !strings.HasPrefix(name, "rabbitmq_") || strings.HasPrefix(name, "rabbitmq_prelaunch") {
			links = append(links, filepath.Join("plugins", name))
		}
	}
	for _, link := range links {
		if err := os.Symlink(filepath.Join(home, link), filepath.Join(bare, link)); err != nil {
			return program
		}
	}
	if !found {
		return program
	}
	return filepath.Join(bare, "sbin", filepath.Base(real))
}

// hostNames is what Erlang is told about host names, so that it asks nobody: where
// no name server answers a node would wait for it while it starts.
const hostNames = `{host, {127,0,0,1}, ["localhost"]}.
{lookup, [file]}.
`

func startRabbitMQ(held *ports, opts *RabbitMQOptions) (*RabbitMQServer, error) {
	program, err := rabbitProgram("rabbitmq-server")
	if err != nil {
		return nil, err
	}
	amqp, dist, names := held.numbers[0], held.numbers[1], held.numbers[2]
	// The node would start a port mapper itself, which then outlives it. So we
	// start one for it, as a process like any other.
	mapper, err := startIn(&ports{}, func(dir string) (Command, error) {
		return Command{
			Path: "epmd", Args: []string{"-address", "127.0.0.1", "-port", strconv.Itoa(names)}, Dir: dir,
			Ready: func() error { return answersTo(addr(names), "\x00\x01n", 4) },
		}, nil
	})
	if err != nil {
		return nil, err
	}
	r := &RabbitMQServer{Addr: addr(amqp), mapper: mapper}
	r.Process, err = startIn(held, func(dir string) (Command, error) {
		config := fmt.Sprintf("listeners.tcp.1 = %s\nloopback_users = none\ndisk_free_limit.absolute = 50MB\n", r.Addr)
		for _, line := range opts.Config {
			config += line + "\n"
		}
		for name, text := range map[string]string{"rabbitmq.conf": config, "plugins": "[].\n", "names": hostNames} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return Command{}, err
			}
		}
		r.env = []string{
			"HOME=" + dir, // the cookie is made there
			"RABBITMQ_NODENAME=duetime@localhost",
			"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
			"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq"),
			"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
			"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
			"RABBITMQ_LOG_BASE=" + dir,
			"RABBITMQ_LOGS=-",
			"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
			"RABBITMQ_DIST_PORT=" + strconv.Itoa(dist),
			"ERL_INETRC=" + filepath.Join(dir, "names"),
			"ERL_EPMD_ADDRESS=127.0.0.1",
			"ERL_EPMD_PORT=" + strconv.Itoa(names),
		}
		return Command{
			Path: withoutPlugins(program, dir), Dir: dir,
			Env: append(
				r.env,
				// The script becomes the server instead of waiting for it, so
				// that signals reach the server.
				"RUNNING_UNDER_SYSTEMD=true",
				// A scheduler with nothing to do sleeps, instead of taking the
				// CPU from the test for a while.
				"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none "+opts.Erlang,
			),
			Ready: func() error { return answersTo(r.Addr, "AMQP\x00\x00\x09\x01", 8) },
		}, nil
	})
	if err != nil {
		mapper.Close()
		return nil, err
	}
	return r, nil
}

// answersTo is content when a server answers a request with n bytes or more.
func answersTo(addr, request string, n int64) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, conn, n)
	return err
}

// URL is how clients connect: amqp://guest:guest@127.0.0.1:port/.
func (r *RabbitMQServer) URL() string { return "amqp://guest:guest@" + r.Addr + "/" }

// Close ends the server and its port mapper.
func (r *RabbitMQServer) Close() {
	r.Process.Close()
	r.mapper.Close()
}

// Ctl runs rabbitmqctl against the server and returns what it prints, without
// the headings. It takes about a second.
func (r *RabbitMQServer) Ctl(args ...string) (string, error) {
	ctl, err := rabbitProgram("rabbitmqctl")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(ctl, append([]string{"-q", "-n", "duetime@localhost"}, args...)...)
	cmd.Dir = r.Dir()
	cmd.Env = append(os.Environ(), r.env...)
	ownGroup(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("testserver: rabbitmqctl %q: %w\n%s", args, err, out)
	}
	return string(out), nil
}
