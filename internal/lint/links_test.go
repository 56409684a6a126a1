package lint

import (
	"io/fs"
	"os"
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

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestLinks: what the documentation points at in the tree is there.
func TestLinks(t *testing.T) {
	for _, doc := range documents(t) {
		text := codeBlock.ReplaceAllString(readDocument(t, doc), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := doc
			if target != "" {
				path = filepath.Join(filepath.Dir(doc), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s points at %s: %v", doc, m[1], err)
				continue
			}
			if anchor != "" && strings.HasSuffix(path, ".md") && !hasAnchor(readDocument(t, path), anchor) {
				t.Errorf("%s points at %s: no such heading", doc, m[1])
			}
		}
	}
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unwanted = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// hasAnchor says whether a heading of the text has this anchor, as code hosts
// make them.
func hasAnchor(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.ReplaceAll(unwanted.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return true
		}
	}
	return false
}
