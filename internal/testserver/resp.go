package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// A RedisError is an answer of Redis that begins with "-".
type RedisError string

func (e RedisError) Error() string { return string(e) }

// A RedisConn is one connection to a Redis server, for tests: it speaks RESP2
// and waits ten seconds at most for an answer. It is not safe for use by several
// goroutines.
type RedisConn struct {
	conn net.Conn
	r    *bufio.Reader
}

// DialRedis connects to a Redis server. The password may be empty.
func DialRedis(addr, password string) (*RedisConn, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &RedisConn{conn: conn, r: bufio.NewReader(conn)}
	if password != "" {
		if _, err := c.Do("AUTH", password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close closes the connection.
func (c *RedisConn) Close() { _ = c.conn.Close() }

// Do sends a command and returns the answer: a string, an int64, nil, or a []any
// of these, in which a RedisError may stand as well. Arguments are strings,
// []byte, or whatever fmt.Sprint makes of them. An error that Redis answers is a
// [RedisError].
func (c *RedisConn) Do(args ...any) (any, error) {
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	request := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		text, ok := arg.([]byte)
		if !ok {
			text = fmt.Append(nil, arg)
		}
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	answer, err := c.read()
	if err != nil {
		return nil, err
	}
	if refused, ok := answer.(RedisError); ok {
		return nil, refused
	}
	return answer, nil
}

func (c *RedisConn) read() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("testserver: not RESP: %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return RedisError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == ':':
		return n, nil
	case kind == '$' && n >= 0:
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case kind == '*' && n >= 0:
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return list, nil
	case kind == '$' || kind == '*':
		return nil, nil
	}
	return nil, fmt.Errorf("testserver: not RESP2: %q", line)
}
