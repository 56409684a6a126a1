package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/duetime/duetime/internal/testserver"
)

var updateScripts = flag.Bool("update", false, "write what the commands print into the scripts' files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"duetime": main})
}

// TestScripts plays the scripts of testdata. Beside the usual commands they
// have:
//
//	fails STATUS COMMAND...   the command must exit with this status, and say why
//	                          in one line on standard error that begins with
//	                          "duetime: "
//	until PATTERN COMMAND...  the command is repeated until its standard output
//	                          matches, for at most 20 s
//	untilfile PATTERN FILE    the same for the contents of a file
//	redis                     starts a Redis of the script's own, redis://$REDIS
//	redisdo PATTERN COMMAND...  sends a command to it, whose answer must match
//
// $ADDR is an address that was free when the script began, $DATA a directory
// for a store, and DUETIME_STORE names that store.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *updateScripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			addr, err := freeAddress()
			data := env.Getenv("WORK") + "/data"
			env.Setenv("ADDR", addr)
			env.Setenv("DATA", data)
			env.Setenv("DUETIME_STORE", "embedded:"+data)
			env.Setenv("HOME", env.Getenv("WORK")+"/home")
			env.Setenv("TZ", "UTC")
			// Under the race detector every process would sleep for a second at
			// its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fails": fails, "until": until, "untilfile": untilFile,
			"redis": startRedis, "redisdo": redisDo,
			"mariadb": startMariaDB, "sql": sqlDo,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "mariadb":
				return testserver.HaveMariaDB(), nil
			}
			return false, errors.New("unknown condition")
		},
	})
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func fails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fails STATUS COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = exit.ExitCode()
	}
	if status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
	text := ts.ReadFile("stderr")
	if !strings.HasPrefix(text, "duetime: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("want one line that begins with duetime:, got %q", text)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("a failure must not print to standard output, got %q", out)
	}
}

func startRedis(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: redis")
	}
	server, err := testserver.StartRedis(nil)
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("REDIS", server.Addr)
}

func redisDo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: redisdo PATTERN COMMAND...")
	}
	conn, err := testserver.DialRedis(ts.Getenv("REDIS"), "")
	ts.Check(err)
	defer conn.Close()
	command := make([]any, len(args)-1)
	for i, arg := range args[1:] {
		command[i] = arg
	}
	answer, err := conn.Do(command...)
	ts.Check(err)
	if text := fmt.Sprint(answer); !regexp.MustCompile(args[0]).MatchString(text) {
		ts.Fatalf("%q answers %q, want a match of %q", args[1:], text, args[0])
	}
}

func startMariaDB(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: mariadb")
	}
	server, err := testserver.StartMariaDB(nil)
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("MYSQL", "mysql://root@"+server.Addr+"/"+server.Database)
	ts.Setenv("DSN", server.DSN())
}

func sqlDo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	db, err := sql.Open("mysql", ts.Getenv("DSN"))
	ts.Check(err)
	defer db.Close()
	_, err = db.ExecContext(context.Background(), args[0])
	ts.Check(err)
}

const patience = 20 * time.Second

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	poll(ts, args[0], func() string {
		// It may fail at first, such as while a server is not up yet.
		_ = ts.Exec(args[1], args[2:]...)
		return ts.ReadFile("stdout")
	})
}

func untilFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: untilfile PATTERN FILE")
	}
	poll(ts, args[0], func() string {
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		if err != nil && !os.IsNotExist(err) {
			ts.Fatalf("%v", err)
		}
		return string(text)
	})
}

func poll(ts *testscript.TestScript, pattern string, read func() string) {
	re, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	text := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if text = read(); re.MatchString(text) {
			return
		}
	}
	ts.Fatalf("no match of %q within %v in %q", pattern, patience, text)
}
