package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/duetime/duetime"

// pkg is what go list says of a package.
type pkg struct {
	Dir          string
	ImportPath   string
	Name         string
	Standard     bool
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// folder is where the package is, in the module: "." for the root.
func (p pkg) folder() string { return folderOf(p.ImportPath) }

func folderOf(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// sources lists the package's Go files, those of its tests included.
func (p pkg) sources() []string {
	var paths []string
	for _, list := range [][]string{p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles} {
		for _, name := range list {
			paths = append(paths, filepath.Join(p.Dir, name))
		}
	}
	return paths
}

var listPackages = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(string(exit.Stderr))
		}
		return nil, err
	}
	var list []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

const root = "../.."

// packages returns every package of the module.
func packages(t *testing.T) []pkg {
	t.Helper()
	list, err := listPackages()
	if err != nil {
		t.Fatal("go list: ", err)
	}
	if len(list) < 2 {
		t.Fatalf("go list shows %d packages: not the whole module", len(list))
	}
	return list
}
