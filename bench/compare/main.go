// Command compare measures duetime's stores beside what people use for the same
// thing: asynq, River, beanstalkd, the sorted set with a script that many articles
// show, a polled SQL table, RabbitMQ published to directly. Each is taken at its
// defaults and at its fastest sensible settings. It starts its own servers, on free
// ports in temporary folders, lets the systems of a group take turns, and writes
// docs/benchmarks.md with its pictures.
//
//	cd bench && go run ./compare
//
// takes a good half an hour, and a machine on which nothing else runs. In pieces,
// whose results are kept in a folder until the page is written:
//
//	go run ./compare -group redis -results DIR
//	go run ./compare -write -results DIR
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "echo" { // this program as a server, see echo.go
		fmt.Fprintln(os.Stderr, serveEcho(os.Args[2]))
		os.Exit(1)
	}
	o := options{}
	var only, jobs string
	var write bool
	flag.StringVar(&only, "group", "", "only these groups, by commas: "+strings.Join(groupNames(), ", "))
	flag.StringVar(&jobs, "job", "", "only these jobs, by commas: "+strings.Join(jobNames(), ", ")+", alone")
	flag.IntVar(&o.repeats, "repeats", 3, "runs of each system for each figure, after a warm-up")
	flag.IntVar(&o.tasks, "tasks", 100_000, "tasks in a run")
	flag.DurationVar(&o.length, "length", 4e9, "when a run that schedules ends at the latest")
	flag.DurationVar(&o.window, "window", 6e9, "for how long tasks come due in a run that measures lateness")
	flag.IntVar(&o.backlog, "backlog", 10_000_000, "the largest backlog beside which our stores are measured")
	flag.StringVar(&o.results, "results", "", "the folder that results are kept in (a temporary one)")
	flag.BoolVar(&write, "write", false, "measure nothing, write the page from the results that are there")
	flag.StringVar(&o.docs, "docs", "../docs", "the folder of benchmarks.md")
	flag.StringVar(&o.note, "note", "", "what else a reader of the page should know of the machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o, list(only), list(jobs), write); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	repeats, tasks int
	length, window duration
	backlog        int
	results, docs  string
	note           string
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func run(ctx context.Context, o *options, only, jobs []string, write bool) error {
	pieces := o.results != "" && !write
	if o.results == "" {
		dir, err := os.MkdirTemp("", "duetime-compare-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.results = dir
	}
	if !write {
		if err := os.MkdirAll(o.results, 0o755); err != nil {
			return err
		}
		if err := measureAll(ctx, o, only, jobs); err != nil {
			return err
		}
		if pieces {
			return nil
		}
	}
	all, err := readResults(o.results)
	if err != nil {
		return err
	}
	return writePage(all, filepath.Clean(o.docs), o.note)
}
