package lint

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents lists the module's Markdown files, by their paths from the root.
func documents(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			paths = append(paths, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// programs finds the whole programs in the documentation: Go blocks of Markdown
// files that begin with a package clause, and the program in the root package's
// comment.
func programs(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, doc := range documents(t) {
		for i, m := range goBlock.FindAllStringSubmatch(readDocument(t, doc), -1) {
			if strings.HasPrefix(m[1], "package ") {
				found[fmt.Sprintf("%s, Go block %d", doc, i+1)] = m[1]
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	for _, line := range strings.Split(string(text), "\n") {
		code, isCode := strings.CutPrefix(line, "//\t")
		switch {
		case isCode && (strings.HasPrefix(code, "package ") || program.Len() > 0):
			program.WriteString(code + "\n")
		case strings.HasPrefix(line, "// ") && program.Len() > 0:
			found["doc.go"] = program.String()
			program.Reset()
		case program.Len() > 0: // an empty line of the comment
			program.WriteString("\n")
		}
	}
	if program.Len() > 0 {
		found["doc.go"] = program.String()
	}
	return found
}

// TestProgramsCompile: what a reader copies out of the documentation works.
func TestProgramsCompile(t *testing.T) {
	found := programs(t)
	for _, must := range []string{"README.md, Go block 1", "doc.go"} {
		if found[must] == "" {
			t.Errorf("%s is no whole program", must)
		}
	}
	// An overlay puts the programs into the module without touching the tree.
	dir := t.TempDir()
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	names := map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", t.TempDir()}
	for name, program := range found {
		pkg := fmt.Sprintf("zz_document_%d", len(overlay))
		file := filepath.Join(dir, pkg+".go")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(base, pkg, "main.go")] = file
		names[pkg] = name
		args = append(args, "./"+pkg)
		if n := strings.Count(program, "\n"); n > 30 {
			t.Errorf("%s: a first program of %d lines is too long", name, n)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		report := string(out)
		for pkg, name := range names {
			report = strings.ReplaceAll(report, pkg, pkg+" ("+name+")")
		}
		t.Errorf("%v: %v\n%s", args, err, report)
	}
}
