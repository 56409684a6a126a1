package redisstore

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

// Whoever names the wrong server is told what to write instead.
func TestErrorsOfOpeningSayWhatToDo(t *testing.T) {
	t.Parallel()
	plain := testserver.Redis(t, nil)
	secret := testserver.Redis(t, &testserver.RedisOptions{Password: "secret"})
	host, port, err := net.SplitHostPort(plain.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--replicaof", host + " " + port}})
	node := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--cluster-enabled", "yes"}})
	evicting := testserver.Redis(t, &testserver.RedisOptions{Config: []string{"--maxmemory-policy", "allkeys-lru"}})
	for _, c := range []struct{ url, want string }{
		{"redis://" + secret.Addr, "asks for a password: write redis://:PASSWORD@HOST"},
		{"redis://:wrong@" + secret.Addr, "the user or the password is wrong"},
		{"redis://secret@" + secret.Addr, "a password without a user is written redis://:PASSWORD@HOST"},
		{"redis://" + plain.Addr + "/99", "it has no database 99"},
		{"redis://" + replica.Addr, "is a replica of " + plain.Addr + ": name the master"},
		{"redis://" + node.Addr, "write redis+cluster://"},
		{"redis+cluster://" + node.Addr, "cluster_state"},
		{"redis+sentinel://" + plain.Addr + "/main", "it is no sentinel"},
		{"redis://" + evicting.Addr, "set it to noeviction"},
		{"redis://" + hangsUp(t, ""), "does it want TLS (then write rediss://)?"},
		{"redis://" + hangsUp(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak the protocol of Redis"},
	} {
		opts, err := ParseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		s, err := Open(context.Background(), opts)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.url, err, c.want)
		}
	}
}

// hangsUp returns the address of a server that is none: to whatever is asked it
// answers the same, and closes the connection.
func hangsUp(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			_, _ = c.Read(buffer)
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// Half a password is not shown where the other half has ended what is before the
// query, and the hint says how to write it.
func TestQuestionMarkInAPassword(t *testing.T) {
	for _, url := range []string{"redis://:pa?ss@h", "redis://user:pa?ss@h:6379/1", "redis://user:12?ss@h", "redis://:12?ss=3@h", "rediss+cluster://u:pa?ss@a,b"} {
		_, err := ParseURL(url)
		if err == nil || !strings.Contains(err.Error(), "? is written %3F") || strings.Contains(err.Error(), "pa") && !strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), ":pa") || strings.Contains(err.Error(), "12") || strings.Contains(err.Error(), "ss@") {
			t.Errorf("%s: %v", url, err)
		}
	}
	_, err := ParseURL("redis://u:50%@h")
	if err == nil || !strings.Contains(err.Error(), "% in it is written %25") {
		t.Errorf("a percent sign: %v", err)
	}
}

// redis+cluster:// on a server alone works, and says what it is.
func TestAServerAloneIsNoCluster(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	var told []string
	open(t, Options{Addrs: []string{server.Addr}, Cluster: true, Warn: func(m string) { told = append(told, m) }})
	if len(told) != 1 || !strings.Contains(told[0], "no node of a cluster") {
		t.Errorf("told %q", told)
	}
}

// A server that wait_replicas can not be kept on is opened, with a warning.
func TestTooFewReplicasAreToldOf(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, nil)
	var told []string
	open(t, Options{Addrs: []string{server.Addr}, WaitReplicas: 1, Warn: func(m string) { told = append(told, m) }})
	if len(told) != 1 || !strings.Contains(told[0], "wait_replicas asks for 1") {
		t.Errorf("told %q", told)
	}
}
