package testserver

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A TCPProxy stands between a client and a server and breaks their connections
// as networks do.
type TCPProxy struct {
	// Addr is where clients connect.
	Addr     string
	target   string
	listener net.Listener

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced whenever a switch is turned
	blackhole   bool
	dropReplies bool
	latency     time.Duration
	links       map[*link]struct{}
	closed      bool
	working     sync.WaitGroup
}

// A link is one connection of a client and the one to the server that belongs to
// it.
type link struct {
	client, server net.Conn // server is nil until it is connected
	ended          chan struct{}
	lossy          bool // answers were swallowed
}

// Proxy starts a proxy to the server at target (host and port). It ends with the
// test.
func Proxy(t testing.TB, target string) *TCPProxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy is Proxy outside a test. Whoever calls it must call Close.
func StartProxy(target string) (*TCPProxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &TCPProxy{
		Addr: l.Addr().String(), target: target, listener: l,
		changed: make(chan struct{}), links: map[*link]struct{}{},
	}
	p.working.Go(p.accept)
	return p, nil
}

// turn changes a switch and wakes who waits for one.
func (p *TCPProxy) turn(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Blackhole(true) stops everything, as a cut cable does: connections are
// accepted and stay open, and nobody hears of anybody, not even that the other
// one has closed. What was sent meanwhile arrives after Blackhole(false).
func (p *TCPProxy) Blackhole(on bool) { p.turn(func() { p.blackhole = on }) }

// DropReplies(true) passes requests on and swallows the answers. A connection
// that has lost some is reset by DropReplies(false), since TCP never goes on
// behind a gap.
func (p *TCPProxy) DropReplies(on bool) {
	p.turn(func() {
		p.dropReplies = on
		for l := range p.links {
			if !on && l.lossy {
				l.reset()
			}
		}
	})
}

// Latency delays everything that is sent from now on by d, in each direction.
func (p *TCPProxy) Latency(d time.Duration) { p.turn(func() { p.latency = d }) }

// DropConnections resets the connections that there are. New ones can be made.
func (p *TCPProxy) DropConnections() {
	p.turn(func() {
		for l := range p.links {
			l.reset()
		}
	})
}

// Connections says how many there are.
func (p *TCPProxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close resets all connections and accepts no more.
func (p *TCPProxy) Close() {
	_ = p.listener.Close()
	p.turn(func() {
		p.closed = true
		for l := range p.links {
			l.reset()
		}
	})
	p.working.Wait()
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{client: client, ended: make(chan struct{})}
		p.mu.Lock()
		if p.closed {
			l.reset()
		} else {
			p.links[l] = struct{}{}
			p.working.Go(func() { p.serve(l) })
		}
		p.mu.Unlock()
	}
}

// reset ends both connections with RST. The proxy's mutex must be held.
func (l *link) reset() {
	select {
	case <-l.ended:
		return
	default:
	}
	close(l.ended)
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}

// serve carries what is sent over a link until both sides have closed it.
func (p *TCPProxy) serve(l *link) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.reset()
		delete(p.links, l)
	}()
	if !p.passable(l) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	p.mu.Lock()
	select {
	case <-l.ended:
		_ = server.Close()
	default:
	}
	l.server = server
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(l, l.client, server, false) })
	both.Go(func() { p.carry(l, server, l.client, true) })
	both.Wait()
}

// passable waits until the proxy is no black hole. It is false if the link ended
// before.
func (p *TCPProxy) passable(l *link) bool {
	for {
		p.mu.Lock()
		blackhole, changed := p.blackhole, p.changed
		p.mu.Unlock()
		select {
		case <-l.ended:
			return false
		default:
		}
		if !blackhole {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// A parcel is bytes, or the end of a direction, and when they may be delivered.
type parcel struct {
	data []byte
	end  error // io.EOF where the sender has closed, another one where it was cut off
	at   time.Time
}

// carry takes what from sends to to.
func (p *TCPProxy) carry(l *link, from, to net.Conn, replies bool) {
	// The way holds what is under way, so that latency does not limit how much
	// is sent.
	way := make(chan parcel, 1024)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(way)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			p.mu.Lock()
			next := parcel{data: buffer[:n], end: err, at: time.Now().Add(p.latency)}
			p.mu.Unlock()
			select {
			case way <- next:
			case <-l.ended:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for next := range way {
		if !l.sleepUntil(next.at) || !p.passable(l) {
			return
		}
		if len(next.data) > 0 && !(replies && p.swallows(l)) {
			if _, err := to.Write(next.data); err != nil {
				next.end = err
			}
		}
		if tcp, ok := to.(*net.TCPConn); ok && next.end == io.EOF {
			_ = tcp.CloseWrite()
			return
		}
		if next.end != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			l.reset()
			return
		}
	}
}

// sleepUntil is false if the link ended before.
func (l *link) sleepUntil(at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}

func (p *TCPProxy) swallows(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lossy = l.lossy || p.dropReplies
	return l.lossy
}
