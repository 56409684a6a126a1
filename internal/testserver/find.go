package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// needVariable is the environment variable that makes a missing server a
// failure. It is set where the servers were installed, so that skipped tests are
// not taken for passed ones there.
const needVariable = "DUETIME_NEED_SERVERS"

// A NotInstalledError says which program is missing.
type NotInstalledError struct {
	Program string
	Package string // what Debian calls the package that has it
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s is not installed here (apt-get install %s)", e.Program, e.Package)
}

// packageOf names the Debian package of a program.
func packageOf(program string) string {
	switch filepath.Base(program) {
	case "mariadbd", "mariadb-install-db":
		return "mariadb-server"
	case "mariadb":
		return "mariadb-client"
	case "epmd":
		return "erlang-base"
	case "rabbitmqctl":
		return "rabbitmq-server"
	case "redis-sentinel":
		return "redis-server"
	}
	return filepath.Base(program)
}

// find returns the path of a program. Some folders are looked into beside $PATH,
// because servers lie where only root's path leads.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	if filepath.Base(program) == program {
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
				return path, nil
			}
		}
	}
	return "", &NotInstalledError{Program: program, Package: packageOf(program)}
}

// Need skips the test where a program is not installed, and says which. With the
// environment variable DUETIME_NEED_SERVERS set to 1 the test fails instead.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := find(program); err != nil {
			missing(t, err)
		}
	}
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(needVariable) == "1" {
		t.Fatalf("%v, and %s=1 says that it must be", err, needVariable)
	}
	t.Skip(err)
}
