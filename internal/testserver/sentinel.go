package testserver

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RedisReplica starts a replica of master that ends with the test. It is in sync
// when this returns.
func RedisReplica(t testing.TB, master *RedisServer, opts *RedisOptions) *RedisServer {
	t.Helper()
	r, err := StartRedisReplica(master, opts)
	return forTest(t, r, err)
}

// StartRedisReplica is RedisReplica outside a test. Whoever calls it must call
// Close. The password is the master's.
func StartRedisReplica(master *RedisServer, opts *RedisOptions) (*RedisServer, error) {
	o := RedisOptions{}
	if opts != nil {
		o = *opts
	}
	o.Password = master.password
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		return nil, err
	}
	o.Config = append([]string{"--replicaof", host, port}, o.Config...)
	r, err := StartRedis(&o)
	if err != nil {
		return nil, err
	}
	if err := r.AwaitReplication(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// AwaitReplication waits, half a minute at most, until a replica is connected to
// its master and has a copy of its data.
func (r *RedisServer) AwaitReplication() error {
	return await(30*time.Second, "replication to "+r.Addr, func() error {
		info, err := r.Info("replication")
		if err != nil {
			return err
		}
		if info["role"] != "slave" || info["master_link_status"] != "up" {
			return fmt.Errorf("role %s, link to the master %s", info["role"], info["master_link_status"])
		}
		return nil
	})
}

// SentinelOptions says how sentinels are configured. nil means all defaults.
type SentinelOptions struct {
	// DownAfter is how long a master may be silent before it counts as down.
	// 500 ms by default.
	DownAfter time.Duration
	// Password is asked of clients of the sentinels themselves.
	Password string
}

// SentinelSet is three sentinels that watch one master, two of which must agree
// that it is down.
type SentinelSet struct {
	// Name is what the sentinels call the master.
	Name string
	// Nodes are the sentinels.
	Nodes []*RedisServer
}

// Sentinels starts three sentinels for a master and its replicas, which must be
// there already. They end with the test.
func Sentinels(t testing.TB, master *RedisServer, opts *SentinelOptions) *SentinelSet {
	t.Helper()
	s, err := StartSentinels(master, opts)
	return forTest(t, s, err)
}

// StartSentinels is Sentinels outside a test. Whoever calls it must call Close.
func StartSentinels(master *RedisServer, opts *SentinelOptions) (*SentinelSet, error) {
	if opts == nil {
		opts = &SentinelOptions{}
	}
	const count = 3
	s := &SentinelSet{Name: "duetime"}
	for range count {
		var node *RedisServer
		err := withPorts(1, false, func(held *ports) (err error) {
			node, err = s.startNode(held, master, opts)
			return err
		})
		if err != nil {
			s.Close()
			return nil, err
		}
		s.Nodes = append(s.Nodes, node)
	}
	info, err := master.Info("replication")
	if err == nil {
		err = s.awaitKnown(count-1, info["connected_slaves"])
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w\n%s", err, s.LogTail())
	}
	return s, nil
}

func (s *SentinelSet) startNode(held *ports, master *RedisServer, opts *SentinelOptions) (*RedisServer, error) {
	port := held.numbers[0]
	node := &RedisServer{Addr: addr(port), password: opts.Password}
	host, masterPort, err := net.SplitHostPort(master.Addr)
	if err != nil {
		return nil, err
	}
	downAfter := opts.DownAfter
	if downAfter == 0 {
		downAfter = 500 * time.Millisecond
	}
	lines := []string{
		fmt.Sprintf("port %d", port), "bind 127.0.0.1", "protected-mode no",
		fmt.Sprintf("sentinel monitor %s %s %s 2", s.Name, host, masterPort),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", s.Name, downAfter.Milliseconds()),
		// After twice that time a failed attempt is repeated.
		fmt.Sprintf("sentinel failover-timeout %s 3000", s.Name),
	}
	if master.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", s.Name, master.password))
	}
	if opts.Password != "" {
		lines = append(lines, "requirepass "+opts.Password)
	}
	node.Process, err = startIn(held, func(dir string) (Command, error) {
		// A sentinel writes what it learns into its configuration.
		config := filepath.Join(dir, "sentinel.conf")
		text := strings.Join(append(lines, "dir "+dir), "\n") + "\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return Command{}, err
		}
		ready := func() error {
			if _, err := node.Do("PING"); err != nil {
				return err
			}
			// It asks for the state of servers every ten seconds and says hello
			// every two, which makes tests wait. Only Redis 7 and newer can be
			// told to be quicker, so an error is none.
			_, _ = node.Do("SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PUBLISH-PERIOD", 200)
			return nil
		}
		return Command{Path: redisProgram(), Args: []string{config, "--sentinel"}, Dir: dir, Ready: ready}, nil
	})
	if err != nil {
		return nil, err
	}
	return node, nil
}

// awaitKnown waits until every sentinel knows the others and the replicas: only
// then a failover can succeed.
func (s *SentinelSet) awaitKnown(others int, replicas string) error {
	return await(30*time.Second, "sentinels find each other", func() error {
		for _, node := range s.Nodes {
			answer, err := node.Do("SENTINEL", "MASTER", s.Name)
			if err != nil {
				return err
			}
			state := pairs(answer)
			if state["num-other-sentinels"] != fmt.Sprint(others) || state["num-slaves"] != replicas || state["flags"] != "master" {
				return fmt.Errorf("%s knows %s others and %s replicas of %s, and says %q", node.Addr,
					state["num-other-sentinels"], state["num-slaves"], replicas, state["flags"])
			}
		}
		return nil
	})
}

// pairs makes a map of a list of names and values.
func pairs(answer any) map[string]string {
	list, _ := answer.([]any)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// Addrs are the hosts and ports of the sentinels.
func (s *SentinelSet) Addrs() []string { return addrsOf(s.Nodes) }

func addrsOf(nodes []*RedisServer) []string {
	addrs := make([]string, len(nodes))
	for i, node := range nodes {
		addrs[i] = node.Addr
	}
	return addrs
}

// Master asks all sentinels that run who the master is. It is an error if they
// disagree.
func (s *SentinelSet) Master() (addr string, err error) {
	for _, node := range s.Nodes {
		if !node.Running() {
			continue
		}
		answer, err := node.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
		if err != nil {
			return "", err
		}
		parts, _ := answer.([]any)
		if len(parts) != 2 {
			return "", fmt.Errorf("testserver: %s answers %v", node.Addr, answer)
		}
		now := net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1]))
		if addr != "" && addr != now {
			return "", fmt.Errorf("testserver: sentinels disagree: the master is %s or %s", addr, now)
		}
		addr = now
	}
	return addr, nil
}

// AwaitMaster waits, half a minute at most, until all sentinels agree on a master
// other than old, and returns it.
func (s *SentinelSet) AwaitMaster(old string) (addr string, err error) {
	err = await(30*time.Second, "a master other than "+old, func() (err error) {
		if addr, err = s.Master(); err != nil {
			return err
		}
		if addr == old {
			return fmt.Errorf("it is still the master")
		}
		return nil
	})
	return addr, err
}

// Failover has a replica made the master though the master is well, as an
// operator would, and returns the new master.
func (s *SentinelSet) Failover() (addr string, err error) {
	old, err := s.Master()
	if err != nil {
		return "", err
	}
	if _, err := s.Nodes[0].Do("SENTINEL", "FAILOVER", s.Name); err != nil {
		return "", err
	}
	return s.AwaitMaster(old)
}

// Close ends the sentinels.
func (s *SentinelSet) Close() { closeAll(s.Nodes) }

// LogTail is what the sentinels printed last.
func (s *SentinelSet) LogTail() string { return logTails(s.Nodes) }

func closeAll(nodes []*RedisServer) {
	for _, node := range nodes {
		if node != nil {
			node.Close()
		}
	}
}

func logTails(nodes []*RedisServer) string {
	var text strings.Builder
	for _, node := range nodes {
		if node != nil {
			text.WriteString(node.LogTail())
		}
	}
	return text.String()
}
