package testserver

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// RedisClusterOptions says what a cluster is made of. nil means all defaults.
type RedisClusterOptions struct {
	RedisOptions // of every node

	Masters  int // 3 by default
	Replicas int // of each master, none by default
	// NodeTimeout is how long a node may be silent before it counts as failed.
	// 2 s by default.
	NodeTimeout time.Duration
}

const slots = 16384

// RedisClusterServer is a Redis cluster.
type RedisClusterServer struct {
	// Nodes are all servers: first those that were masters when it began, then
	// their replicas, in the same order again.
	Nodes []*RedisServer
	ids   []string // of Nodes
}

// RedisCluster starts a Redis cluster that ends with the test. It takes two to
// three seconds, because a node does not serve before.
func RedisCluster(t testing.TB, opts *RedisClusterOptions) *RedisClusterServer {
	t.Helper()
	c, err := StartRedisCluster(opts)
	return forTest(t, c, err)
}

// StartRedisCluster is RedisCluster outside a test. Whoever calls it must call
// Close.
func StartRedisCluster(opts *RedisClusterOptions) (*RedisClusterServer, error) {
	o := RedisClusterOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Masters == 0 {
		o.Masters = 3
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 2 * time.Second
	}
	o.Config = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", fmt.Sprint(o.NodeTimeout.Milliseconds()),
	}, o.Config...)
	count := o.Masters * (1 + o.Replicas)
	c := &RedisClusterServer{Nodes: make([]*RedisServer, count), ids: make([]string, count)}
	err := together(count, func(i int) error {
		return withPorts(1, true, func(held *ports) (err error) {
			c.Nodes[i], err = startRedis(held, held.numbers[0], &o.RedisOptions)
			return err
		})
	})
	if err == nil {
		if err = c.join(o.Masters); err != nil {
			err = fmt.Errorf("%w\n%s", err, c.LogTail())
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// join makes a cluster of nodes that know nothing of each other.
func (c *RedisClusterServer) join(masters int) error {
	for i, node := range c.Nodes {
		id, err := node.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids[i] = fmt.Sprint(id)
		// Different from the start, so that the nodes need not settle it.
		if _, err := node.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(c.Nodes[0].Addr)
		if err != nil {
			return err
		}
		if _, err := node.Do("CLUSTER", "MEET", host, port); err != nil {
			return err
		}
	}
	for i, node := range c.Nodes[:masters] {
		args := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			args = append(args, slot)
		}
		if _, err := node.Do(args...); err != nil {
			return err
		}
	}
	for i, node := range c.Nodes[masters:] {
		master := c.ids[i%masters]
		// It is refused until the node has heard of its master.
		err := await(30*time.Second, "a replica in the cluster", func() error {
			_, err := node.Do("CLUSTER", "REPLICATE", master)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := c.AwaitOK(); err != nil {
		return err
	}
	for _, node := range c.Nodes[masters:] {
		if err := node.AwaitReplication(); err != nil {
			return err
		}
	}
	return nil
}

// AwaitOK waits, half a minute at most, until every node that runs says that the
// cluster serves all slots, and all of them agree who has which.
func (c *RedisClusterServer) AwaitOK() error {
	return await(30*time.Second, "the cluster serves", func() error {
		first, firstAddr := "", ""
		for _, node := range c.Nodes {
			if !node.Running() {
				continue
			}
			answer, err := node.Do("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			info := fields(fmt.Sprint(answer))
			if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != fmt.Sprint(slots) || info["cluster_known_nodes"] != fmt.Sprint(len(c.Nodes)) {
				return fmt.Errorf("%s: state %s, %s slots, %s nodes", node.Addr, info["cluster_state"], info["cluster_slots_ok"], info["cluster_known_nodes"])
			}
			view, err := c.owners(node)
			if err != nil {
				return err
			}
			if text := fmt.Sprint(view); first == "" {
				first, firstAddr = text, node.Addr
			} else if text != first {
				return fmt.Errorf("%s and %s disagree who has which slots", firstAddr, node.Addr)
			}
		}
		return nil
	})
}

// owners returns the position in Nodes of the master of each slot, as one node
// sees it, or -1.
func (c *RedisClusterServer) owners(from *RedisServer) ([]int, error) {
	answer, err := from.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	view := make([]int, slots)
	for i := range view {
		view[i] = -1
	}
	ranges, _ := answer.([]any)
	for _, r := range ranges {
		parts, _ := r.([]any)
		if len(parts) < 3 {
			return nil, fmt.Errorf("testserver: CLUSTER SLOTS answers %v", r)
		}
		begin, _ := parts[0].(int64)
		end, _ := parts[1].(int64)
		master, _ := parts[2].([]any)
		if len(master) < 3 {
			return nil, fmt.Errorf("testserver: CLUSTER SLOTS answers %v", r)
		}
		for slot := begin; slot <= end; slot++ {
			view[slot] = c.position(fmt.Sprint(master[2]))
		}
	}
	return view, nil
}

func (c *RedisClusterServer) position(id string) int {
	for i := range c.ids {
		if c.ids[i] == id {
			return i
		}
	}
	return -1
}

// running returns a node that can be asked.
func (c *RedisClusterServer) running() (*RedisServer, error) {
	for _, node := range c.Nodes {
		if node.Running() {
			return node, nil
		}
	}
	return nil, fmt.Errorf("testserver: no node of the cluster runs")
}

// Slot is the slot of a key.
func (c *RedisClusterServer) Slot(key string) (int, error) {
	node, err := c.running()
	if err != nil {
		return 0, err
	}
	answer, err := node.Do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		return 0, err
	}
	slot, _ := answer.(int64)
	return int(slot), nil
}

// Owner is the master that has a slot, as the first node that runs sees it.
func (c *RedisClusterServer) Owner(slot int) (*RedisServer, error) {
	node, err := c.running()
	if err != nil {
		return nil, err
	}
	view, err := c.owners(node)
	if err != nil {
		return nil, err
	}
	if slot < 0 || slot >= slots || view[slot] < 0 {
		return nil, fmt.Errorf("testserver: nobody has slot %d", slot)
	}
	return c.Nodes[view[slot]], nil
}

// Replica is a running replica of a master of this cluster.
func (c *RedisClusterServer) Replica(master *RedisServer) (*RedisServer, error) {
	for _, node := range c.Nodes {
		if !node.Running() {
			continue
		}
		info, err := node.Info("replication")
		if err != nil {
			return nil, err
		}
		if info["role"] == "slave" && net.JoinHostPort(info["master_host"], info["master_port"]) == master.Addr {
			return node, nil
		}
	}
	return nil, fmt.Errorf("testserver: %s has no replica", master.Addr)
}

// Failover makes a replica the master of its slots, as an operator would, and
// waits until every node knows. Nothing that was acknowledged is lost in it.
func (c *RedisClusterServer) Failover(replica *RedisServer) error {
	if _, err := replica.Do("CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	if err := c.AwaitPromoted(replica); err != nil {
		return err
	}
	return c.AwaitOK()
}

// AwaitPromoted waits, half a minute at most, until a replica is a master, as it
// becomes when its master was killed.
func (c *RedisClusterServer) AwaitPromoted(replica *RedisServer) error {
	return await(30*time.Second, replica.Addr+" becomes a master", func() error {
		info, err := replica.Info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("it is a %s", info["role"])
		}
		return err
	})
}

// Addrs are the hosts and ports of all nodes.
func (c *RedisClusterServer) Addrs() []string { return addrsOf(c.Nodes) }

// Close ends all nodes.
func (c *RedisClusterServer) Close() { closeAll(c.Nodes) }

// LogTail is what the nodes printed last.
func (c *RedisClusterServer) LogTail() string { return logTails(c.Nodes) }
