// Package testserver starts real servers for tests and examples: Redis alone,
// with a replica and sentinels, or as a cluster, MariaDB, RabbitMQ, and a proxy
// that breaks connections in the ways in which networks do.
//
// Every server runs in a folder of its own, listens on 127.0.0.1 only, on ports
// that no other test has, and ends with the test: killed with all that it
// started, on Linux even where the test process itself was killed. Its last
// lines of log are shown where it does not start and where the test failed.
//
// Each server can be had in two ways:
//
//	r := testserver.Redis(t, nil)            // a test: skips where it is not installed
//	r, err := testserver.StartRedis(nil)     // anything else; needs r.Close()
//
// Methods return errors instead of failing the test, because tests kill and
// restart servers from goroutines that must not call FailNow. All may be called
// from several goroutines at the same time.
package testserver
