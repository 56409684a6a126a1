package duetime_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The first program that a reader sees must do what it says.
func TestFirstProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	for name, program := range map[string]string{"doc.go": fromDoc(t), "README.md": fromReadme(t)} {
		t.Run(name, func(t *testing.T) {
			if lines := strings.Count(program, "\n"); name == "doc.go" && lines >= 30 {
				t.Errorf("it has %d lines, and ought to have less than 30", lines)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "main.go")
			if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(dir, "first")
			if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			if name == "README.md" {
				playReadme(t, binary)
				return
			}
			cmd := exec.Command(binary)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(`4711.* was not paid`).Match(out) || !strings.Contains(string(out), "<nil>") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// playReadme does what the README says may be done with its program: it is killed
// before the order is due, and started again, when the order is still there. It
// goes on until it is killed once more.
func playReadme(t *testing.T, binary string) {
	start := func() (*exec.Cmd, *bufio.Scanner) {
		cmd := exec.Command(binary)
		cmd.Dir = filepath.Dir(binary)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// For a program that says nothing, so that the test ends.
		timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		t.Cleanup(func() {
			timer.Stop()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd, bufio.NewScanner(out)
	}
	cmd, _ := start()
	time.Sleep(time.Second) // somewhere in its two seconds; right whenever it is
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, lines := start()
	if !lines.Scan() || !strings.Contains(lines.Text(), "order-4711 was not paid") {
		t.Errorf("got %q, %v", lines.Text(), lines.Err())
	}
}

func fromDoc(t *testing.T) string {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	for line := range strings.Lines(string(text)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			program.WriteString(code)
		} else if line == "//\n" && program.Len() > 0 {
			program.WriteString("\n")
		}
	}
	return strings.TrimSpace(program.String()) + "\n"
}

func fromReadme(t *testing.T) string {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```go\npackage main\n")
	program, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatal("README.md has no program")
	}
	return "package main\n" + program
}
