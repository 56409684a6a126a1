package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// echo is a server that answers lines with themselves and counts them.
func echo(t *testing.T) (addr string, lines *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lines = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewScanner(conn); r.Scan(); {
					lines.Add(1)
					fmt.Fprintln(conn, r.Text())
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

type lineConn struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *lineConn {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &lineConn{Conn: conn, r: bufio.NewReader(conn)}
}

func (c *lineConn) send(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
}

// read waits for a line.
func (c *lineConn) read(wait time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	line, err := c.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *lineConn) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := c.read(10 * time.Second); got != want || err != nil {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// silent is how long nothing must come for us to believe that nothing comes.
const silent = 50 * time.Millisecond

func TestProxyBlackhole(t *testing.T) {
	t.Parallel()
	addr, lines := echo(t)
	p := testserver.Proxy(t, addr)
	old := dial(t, p.Addr)
	old.send(t, "one")
	old.expect(t, "one")

	p.Blackhole(true)
	fresh := dial(t, p.Addr)
	old.send(t, "two")
	fresh.send(t, "three")
	for _, c := range []*lineConn{old, fresh} {
		if line, err := c.read(silent); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("out of a black hole came %q, %v", line, err)
		}
	}
	if n := lines.Load(); n != 1 {
		t.Errorf("the server has %d lines, want 1", n)
	}
	p.Blackhole(false)
	old.expect(t, "two")
	fresh.expect(t, "three")
}

func TestProxyDropReplies(t *testing.T) {
	t.Parallel()
	addr, lines := echo(t)
	p := testserver.Proxy(t, addr)
	c := dial(t, p.Addr)
	p.DropReplies(true)
	c.send(t, "one")
	if line, err := c.read(silent); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v", line, err)
	}
	if n := lines.Load(); n != 1 {
		t.Errorf("the server has %d lines, want 1", n)
	}
	p.DropReplies(false)
	if _, err := c.read(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("behind a gap: %v, want a reset", err)
	}
	c = dial(t, p.Addr)
	c.send(t, "two")
	c.expect(t, "two")
}

func TestProxyDropConnections(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	p := testserver.Proxy(t, addr)
	c := dial(t, p.Addr)
	c.send(t, "one")
	c.expect(t, "one")
	p.DropConnections()
	if _, err := c.read(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	c = dial(t, p.Addr)
	c.send(t, "two")
	c.expect(t, "two")
	// A client that has said all still hears the rest.
	c.send(t, "three")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "three")
	if _, err := c.read(10 * time.Second); err == nil {
		t.Error("the connection is still open though the server has closed it")
	}
}

func TestProxyLatency(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	p := testserver.Proxy(t, addr)
	const latency = 20 * time.Millisecond
	p.Latency(latency)
	c := dial(t, p.Addr)
	begin := time.Now()
	c.send(t, "one")
	c.expect(t, "one")
	if d := time.Since(begin); d < 2*latency {
		t.Errorf("there and back took %v, want %v at least", d, 2*latency)
	}
}
