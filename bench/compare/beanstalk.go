package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkd takes delays in whole seconds.
type beanstalkd struct {
	server    *process
	consumers int
	// whole makes tasks due so many whole seconds after they are put, and not when
	// the job says, so that what is late is the server alone.
	whole bool
	tube  string
	runs  int
	pipes []*pipe           // of those who put many
	conns []*beanstalk.Conn // of those who put one
}

// pipe is a connection on which many commands go out before the answers are read.
type pipe struct {
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
}

func openBeanstalkd(whole bool, args ...string) func(context.Context) (system, error) {
	return func(context.Context) (system, error) {
		server, err := startBeanstalkd(args...)
		if err != nil {
			return nil, err
		}
		return &beanstalkd{server: server, consumers: 8, whole: whole}, nil
	}
}

// reset takes a new tube, once the old one is empty: jobs that wait are put to use
// and deleted.
func (b *beanstalkd) reset(context.Context) error {
	b.disconnect()
	if b.tube != "" {
		if err := b.clear(); err != nil {
			return err
		}
	}
	b.runs++
	b.tube = fmt.Sprintf("compare-%d", b.runs)
	for range singleProducers {
		c, err := beanstalk.Dial("tcp", b.server.addr)
		if err != nil {
			return err
		}
		b.conns = append(b.conns, c)
	}
	for range batchProducers {
		c, err := net.Dial("tcp", b.server.addr)
		if err != nil {
			return err
		}
		p := &pipe{c, bufio.NewReader(c), bufio.NewWriterSize(c, 64<<10)}
		b.pipes = append(b.pipes, p)
		fmt.Fprintf(p.w, "use %s\r\n", b.tube)
		if err := p.w.Flush(); err != nil {
			return err
		}
		if _, err := p.r.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

func (b *beanstalkd) clear() error {
	c, err := beanstalk.Dial("tcp", b.server.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	tube := beanstalk.NewTube(c, b.tube)
	for {
		n, err := tube.Kick(100_000)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	var errs [8]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			c, err := beanstalk.Dial("tcp", b.server.addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close()
			set := beanstalk.NewTubeSet(c, b.tube)
			for {
				job, _, err := set.Reserve(0)
				if timedOut(err) {
					return
				}
				if err == nil {
					err = c.Delete(job)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

func timedOut(err error) bool {
	var e beanstalk.ConnError
	return errors.As(err, &e) && (e.Err == beanstalk.ErrTimeout || e.Err == beanstalk.ErrDeadline)
}

// delay is in whole seconds, and not too short: nothing may come early.
func (b *beanstalkd) delay(due time.Time) (time.Duration, time.Time) {
	d := max(0, (time.Until(due) + time.Second - 1).Truncate(time.Second))
	if b.whole {
		due = time.Now().Add(d)
	}
	return d, due
}

const (
	beanPriority = 1024
	beanTTR      = time.Minute
)

func (b *beanstalkd) put(_ context.Context, producer, from, to int, due func(int) time.Time) error {
	if to-from == 1 {
		d, at := b.delay(due(from))
		_, err := beanstalk.NewTube(b.conns[producer], b.tube).Put(payload(from, at), beanPriority, d, beanTTR)
		return err
	}
	p := b.pipes[producer]
	for i := from; i < to; i++ {
		d, at := b.delay(due(i))
		fmt.Fprintf(p.w, "put %d %d %d %d\r\n%s\r\n", beanPriority, int(d.Seconds()), int(beanTTR.Seconds()), payloadBytes, payload(i, at))
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		line, err := p.r.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "INSERTED") {
			err = fmt.Errorf("put: %q", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *beanstalkd) consume(ctx context.Context, on func([]byte), acked func()) (func(), error) {
	var done atomic.Bool
	var all sync.WaitGroup
	stop := func() { done.Store(true); all.Wait() }
	for range b.consumers {
		c, err := beanstalk.Dial("tcp", b.server.addr)
		if err != nil {
			stop()
			return nil, err
		}
		all.Go(func() {
			defer c.Close()
			set := beanstalk.NewTubeSet(c, b.tube)
			for !done.Load() && ctx.Err() == nil {
				job, body, err := set.Reserve(time.Second)
				if timedOut(err) {
					continue
				}
				if err == nil {
					on(body)
					err = c.Delete(job)
				}
				if err != nil {
					fmt.Println("beanstalkd:", err)
					return
				}
				acked()
			}
		})
	}
	return stop, nil
}

func (b *beanstalkd) disconnect() {
	for _, c := range b.conns {
		_ = c.Close()
	}
	for _, p := range b.pipes {
		_ = p.conn.Close()
	}
	b.conns, b.pipes = nil, nil
}

func (b *beanstalkd) close() {
	b.disconnect()
	b.server.end()
}
