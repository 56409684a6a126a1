package testserver

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// RedisOptions says how a Redis server is configured. nil means all defaults.
type RedisOptions struct {
	// AOF turns the append-only file on, so that data survives a restart: with
	// Kill up to the last second, with Stop all. Off by default.
	AOF bool
	// Password is asked of clients, and used by Do. None by default.
	Password string
	// Config is more arguments in the form of the command line, such as
	// "--maxmemory", "64mb", "--appendfsync", "always". They win over ours.
	Config []string
}

// A RedisServer is one redis-server, or one node of something larger.
type RedisServer struct {
	*Process
	// Addr is its host and port.
	Addr     string
	password string
}

// Redis starts a Redis server that ends with the test. Nothing is saved by
// default. The environment variable DUETIME_REDIS_SERVER names another program,
// such as valkey-server.
func Redis(t testing.TB, opts *RedisOptions) *RedisServer {
	t.Helper()
	r, err := StartRedis(opts)
	return forTest(t, r, err)
}

// StartRedis is Redis outside a test. Whoever calls it must call Close.
func StartRedis(opts *RedisOptions) (r *RedisServer, err error) {
	if opts == nil {
		opts = &RedisOptions{}
	}
	err = withPorts(1, false, func(held *ports) error {
		r, err = startRedis(held, held.numbers[0], opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func redisProgram() string {
	if program := os.Getenv("DUETIME_REDIS_SERVER"); program != "" {
		return program
	}
	return "redis-server"
}

// startRedis starts a server on a port of held, which goes with the server.
func startRedis(held *ports, port int, opts *RedisOptions) (*RedisServer, error) {
	r := &RedisServer{Addr: addr(port), password: opts.Password}
	p, err := startIn(held, func(dir string) (Command, error) {
		args := []string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no",
			"--save", "", "--appendonly", "no", "--protected-mode", "no",
			// With a copy by way of the disk a replica is in sync when it says
			// so. Without, it waits five seconds for others, and its master
			// sends nothing new for up to a second after the copy.
			"--repl-diskless-sync", "no",
		}
		if opts.AOF {
			args = append(args, "--appendonly", "yes")
		}
		if opts.Password != "" {
			args = append(args, "--requirepass", opts.Password, "--masterauth", opts.Password)
		}
		return Command{Path: redisProgram(), Args: append(args, opts.Config...), Dir: dir, Ready: r.ready}, nil
	})
	if err != nil {
		return nil, err
	}
	r.Process = p
	return r, nil
}

// ready is content when the server has loaded its data.
func (r *RedisServer) ready() error {
	info, err := r.Info("persistence")
	if err != nil {
		return err
	}
	if info["loading"] != "0" {
		return fmt.Errorf("it loads its data")
	}
	return nil
}

// Do sends one command on a connection of its own; see [RedisConn.Do]. For
// commands that belong together use [RedisServer.Dial].
func (r *RedisServer) Do(args ...any) (any, error) {
	c, err := r.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// Dial opens a connection to the server.
func (r *RedisServer) Dial() (*RedisConn, error) { return DialRedis(r.Addr, r.password) }

// Info returns a section of INFO, such as "replication".
func (r *RedisServer) Info(section string) (map[string]string, error) {
	answer, err := r.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(fmt.Sprint(answer)), nil
}

// fields reads lines of "name:value".
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			m[name] = value
		}
	}
	return m
}
