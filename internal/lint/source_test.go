package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxLines: a longer file holds two things.
const maxLines = 600

func TestFileLength(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.sources() {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > maxLines {
				t.Errorf("%s/%s has %d lines, the limit is %d: it holds two things", p.folder(), filepath.Base(path), n, maxLines)
			}
		}
	}
}

// TestPackageNames: a package is named for its job.
func TestPackageNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}
	for _, p := range packages(t) {
		if slices.Contains(vague, p.Name) {
			t.Errorf("%s: package %s does not say what it is for", p.folder(), p.Name)
		}
	}
}

// TestNoInit: nothing happens because a package was imported. Stores are opened
// by whoever wants them, not registered.
func TestNoInit(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s/%s has an init function", p.folder(), name)
				}
			}
		}
	}
}

// TestPackageComments: every package says what it is for.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		found := false
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
				found = true
			}
		}
		if !found {
			t.Errorf("%s has no package comment", p.folder())
		}
	}
}
