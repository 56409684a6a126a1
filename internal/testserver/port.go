package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

const (
	// Ports are taken from below those that Linux gives to outgoing connections
	// (from 32768 on): one of those might else have ours while a server restarts.
	firstPort = 12000
	lastPort  = 22767
	// busOffset is how far the bus port of a Redis cluster node lies above its
	// own. lastPort + busOffset is below 32768 as well.
	busOffset = 10000
)

// ports holds TCP ports for the servers of a test, also while these are not
// running. Two tests in two processes must not choose the same one, so whoever
// holds the UDP port of a number may use the TCP port of that number: the kernel
// gives it to one process alone, and takes it back when that ends.
type ports struct {
	numbers []int
	held    []net.PacketConn
}

// takePorts holds n ports. With bus, those busOffset above them are held too.
func takePorts(n int, bus bool) (*ports, error) {
	p := &ports{}
	for range 10_000 {
		if len(p.numbers) == n {
			return p, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !p.hold(port) {
			continue
		}
		if bus && !p.hold(port+busOffset) {
			continue // the lower one stays held until release, which hurts nobody
		}
		p.numbers = append(p.numbers, port)
	}
	p.release()
	return nil, fmt.Errorf("testserver: no %d free ports between %d and %d", n, firstPort, lastPort)
}

func (p *ports) hold(port int) bool {
	lock, err := net.ListenPacket("udp4", addr(port))
	if err != nil {
		return false
	}
	// Something else on this machine may have the port.
	l, err := net.Listen("tcp4", addr(port))
	if err != nil {
		lock.Close()
		return false
	}
	l.Close()
	p.held = append(p.held, lock)
	return true
}

func (p *ports) release() {
	for _, lock := range p.held {
		lock.Close()
	}
	p.held = nil
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portTaken says whether a server did not start because somebody who knows
// nothing of our locks took its port in between.
func portTaken(err error) bool {
	var failed *startError
	if !errors.As(err, &failed) {
		return false
	}
	log := strings.ToLower(failed.log)
	return strings.Contains(log, "address already in use") || strings.Contains(log, "eaddrinuse") || strings.Contains(log, "address in use")
}

// withPorts calls start with n held ports, and again with others where one was
// taken. The ports stay held if start succeeds.
func withPorts(n int, bus bool, start func(*ports) error) error {
	for attempt := 1; ; attempt++ {
		p, err := takePorts(n, bus)
		if err != nil {
			return err
		}
		if err = start(p); err == nil {
			return nil
		}
		p.release()
		if attempt == 5 || !portTaken(err) {
			return err
		}
	}
}
