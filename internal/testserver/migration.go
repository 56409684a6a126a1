package testserver

import (
	"fmt"
	"net"
	"strings"
)

// A SlotMigration is a slot on its way from one master to another. Meanwhile
// keys that have moved are answered with ASK.
type SlotMigration struct {
	cluster  *RedisClusterServer
	slot     int
	from, to *RedisServer
	fromID   string
	toID     string
}

// MigrateSlot moves a slot to another master while both serve.
func (c *RedisClusterServer) MigrateSlot(slot int, to *RedisServer) error {
	m, err := c.BeginMigration(slot, to)
	if err != nil {
		return err
	}
	return m.Finish()
}

// BeginMigration opens a slot for its way to another master and moves nothing
// yet.
func (c *RedisClusterServer) BeginMigration(slot int, to *RedisServer) (*SlotMigration, error) {
	from, err := c.Owner(slot)
	if err != nil {
		return nil, err
	}
	m := &SlotMigration{cluster: c, slot: slot, from: from, to: to}
	for i, node := range c.Nodes {
		switch node {
		case from:
			m.fromID = c.ids[i]
		case to:
			m.toID = c.ids[i]
		}
	}
	if m.toID == "" {
		return nil, fmt.Errorf("testserver: slot %d can not move from %s to %s", slot, from.Addr, to.Addr)
	}
	if _, err := to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", m.fromID); err != nil {
		return nil, err
	}
	if _, err := from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", m.toID); err != nil {
		return nil, err
	}
	return m, nil
}

// MoveKeys moves up to n keys and returns how many there were.
func (m *SlotMigration) MoveKeys(n int) (int, error) {
	answer, err := m.from.Do("CLUSTER", "GETKEYSINSLOT", m.slot, n)
	if err != nil {
		return 0, err
	}
	keys, _ := answer.([]any)
	if len(keys) == 0 {
		return 0, nil
	}
	host, port, err := net.SplitHostPort(m.to.Addr)
	if err != nil {
		return 0, err
	}
	args := []any{"MIGRATE", host, port, "", 0, 5000}
	if m.to.password != "" {
		args = append(args, "AUTH", m.to.password)
	}
	_, err = m.from.Do(append(append(args, "KEYS"), keys...)...)
	return len(keys), err
}

// Finish moves the keys that are left and tells every master whose the slot is
// now.
func (m *SlotMigration) Finish() error {
	for {
		n, err := m.MoveKeys(100)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	// First who gets it: if everything ended in between, nobody must think
	// that the slot has no owner.
	order := append([]*RedisServer{m.to, m.from}, m.cluster.Nodes...)
	for i, node := range order {
		if !node.Running() || i > 1 && (node == m.to || node == m.from) {
			continue
		}
		_, err := node.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
		if err != nil && !strings.Contains(err.Error(), "only with masters") {
			return err
		}
	}
	return m.cluster.AwaitOK()
}
