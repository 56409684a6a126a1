package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/duetime/duetime/internal/wire"
)

// A browser on this machine reaches the server with whatever page is open in it,
// and there is no password to stop it. Two things do: what the browser says of
// where the request comes from, and the name by which it calls the server. The
// second is for pages whose own name was made to point here (DNS rebinding): to
// the browser they and the server are one site.

// crossOrigin keeps pages of other sites from using the server on the user's
// behalf.
var crossOrigin = http.NewCrossOriginProtection()

// checkOrigin returns a *failure, or nil.
func (s *Server) checkOrigin(r *http.Request, checkHost bool) error {
	refuse := func(header, value, problem string) error {
		return &failure{status: http.StatusForbidden, err: wireError(wire.CodeInput, header, value, problem)}
	}
	if checkHost && !s.isOwnHost(r.Host) {
		return refuse("Host", r.Host, "is not a name of this server: call it by localhost or an IP address, or start it with --host and the name")
	}
	if crossOrigin.Check(r) == nil {
		return nil
	}
	// What the browser says goes before the comparison of Origin and Host.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return refuse("Sec-Fetch-Site", site, "requests of other sites' pages are refused")
	}
	return refuse("Origin", r.Header.Get("Origin"), "requests of other sites' pages are refused")
}

// allowHosts makes s.hosts of the options.
func (s *Server) allowHosts() {
	s.hosts = make(map[string]bool, len(s.opts.Hosts))
	for _, h := range s.opts.Hosts {
		s.hosts[hostName(h)] = true
	}
}

// hostName is a Host header without its port, as names are compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isOwnHost says whether a Host header names this server for certain. That of
// another page never is an IP address, for which no DNS is asked. Only HTTP/1.0
// has none, which no browser speaks.
func (s *Server) isOwnHost(host string) bool {
	if host == "" {
		return true
	}
	name := hostName(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || s.hosts[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// isLoopback says whether only this machine reaches an address.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
