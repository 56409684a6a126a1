package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A rule says what the packages of a folder may import beside the standard
// library. Entries are folders of this module ("store" means that package alone,
// "internal/..." all below) or module paths of others, by prefix.
type rule struct {
	folder string // the longest one that fits a package is its rule
	may    []string
	// onlyTests: other packages may import this one in tests only, but for those
	// whose rule names it.
	onlyTests bool
}

// rules is the table of ARCHITECTURE.md. A new folder needs a line here and
// there.
var rules = []rule{
	{folder: ".", may: []string{"store", "internal/...", "github.com/google/uuid"}},
	{folder: "duetimetest", may: []string{".", "store", "store/memstore"}},

	{folder: "store"},
	{folder: "store/storetest", may: []string{"store", "store/storetest/history", "github.com/HdrHistogram/hdrhistogram-go"}, onlyTests: true},
	{folder: "store/faultstore", may: []string{"store"}, onlyTests: true},
	{folder: "store/memstore", may: []string{"store", "internal/..."}},
	{folder: "store/diskstore", may: []string{"store", "internal/...", "github.com/cockroachdb/pebble/v2", "golang.org/x/sys"}},
	{folder: "store/mysqlstore", may: []string{"store", "internal/...", "github.com/go-sql-driver/mysql"}},
	{folder: "store/redisstore", may: []string{"store", "internal/...", "github.com/redis/rueidis"}},
	{folder: "store/tieredstore", may: []string{"store"}},
	{folder: "store/rabbitstore", may: []string{"store", "internal/...", "github.com/rabbitmq/amqp091-go"}},
	{folder: "store/remotestore", may: []string{"store", "internal/...", "github.com/go-json-experiment/json"}},

	{folder: "server", may: []string{".", "store", "internal/...", "github.com/danielgtaylor/huma/v2", "github.com/prometheus", "github.com/google/uuid", "github.com/go-json-experiment/json"}},
	{folder: "cmd", may: []string{"..."}},

	{folder: "internal", may: []string{"store", "internal/...", "golang.org/x/sys"}},
	{folder: "internal/release", may: []string{"store", "github.com/netresearch/go-cron"}},
	{folder: "internal/migrate", may: []string{"store"}},
	{folder: "internal/takeover", may: []string{"store"}},
	{folder: "internal/takeover/takeovertest", may: []string{"store", "store/memstore", "store/faultstore", "store/storetest", "internal/takeover"}, onlyTests: true},
	{folder: "internal/takeover/mysqlsource", may: []string{"store", "store/mysqlstore", "internal/takeover", "github.com/go-sql-driver/mysql"}},
	{folder: "internal/takeover/redissource", may: []string{"store", "store/redisstore", "internal/takeover", "github.com/redis/rueidis"}},
	{folder: "internal/bench", may: []string{".", "store", "internal/svgchart", "github.com/HdrHistogram/hdrhistogram-go"}},
	{folder: "internal/bench/benchtest", may: []string{"."}, onlyTests: true},
	{folder: "internal/svgchart"},
	{folder: "internal/storeurl"},
	{folder: "internal/wire", may: []string{"store", "internal/timetext", "github.com/go-json-experiment/json"}},
	{folder: "internal/dispatch", may: []string{"store", "internal/clock"}},
	{folder: "internal/testserver", onlyTests: true},
	{folder: "examples", may: []string{".", "store/...", "duetimetest", "internal/testserver"}},
}

// alwaysTests lists what any test may import beside what its package may.
var alwaysTests = []string{"...", "github.com/rogpeppe/go-internal", "github.com/HdrHistogram/hdrhistogram-go"}

func ruleFor(folder string, rules []rule) (best rule, ok bool) {
	for _, r := range rules {
		if within(folder, r.folder+"/...") && (!ok || len(r.folder) > len(best.folder)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// within says whether a folder is named by a pattern.
func within(folder, pattern string) bool {
	if pattern == "..." {
		return true
	}
	if base, all := strings.CutSuffix(pattern, "/..."); all {
		// The root's rule is for the root package alone.
		return folder == base || base != "." && strings.HasPrefix(folder, base+"/")
	}
	return folder == pattern
}

func allowed(importPath string, may []string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	if !strings.Contains(first, ".") && importPath != "C" {
		return true // the standard library
	}
	ours := importPath == module || strings.HasPrefix(importPath, module+"/")
	for _, m := range may {
		if ours && within(folderOf(importPath), m) {
			return true
		}
		if !ours && (importPath == m || strings.HasPrefix(importPath, m+"/") || m == "...") {
			return true
		}
	}
	return false
}

// breaches says which imports break the rules.
func breaches(list []pkg, rules []rule) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, p := range list {
		r, ok := ruleFor(p.folder(), rules)
		if !ok {
			add("%s: no rule says what it may import: add it to internal/lint and to ARCHITECTURE.md", p.folder())
			continue
		}
		for _, imp := range p.Imports {
			if !allowed(imp, r.may) {
				add("%s may not import %s (it may import the standard library and %q)", p.folder(), imp, r.may)
			}
			if target, ok := ruleFor(folderOf(imp), rules); ok && target.onlyTests && folderOf(imp) != p.folder() && !r.onlyTests && !slices.Contains(r.may, target.folder) {
				add("%s imports %s outside tests", p.folder(), imp)
			}
		}
		// The contract must not come to depend on a store, not even in its tests.
		testMay := slices.Concat(r.may, alwaysTests)
		if r.folder == "store" {
			testMay = []string{"store"}
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			if !allowed(imp, testMay) {
				add("the tests of %s may not import %s", p.folder(), imp)
			}
		}
	}
	return found
}

func TestImports(t *testing.T) {
	for _, b := range breaches(packages(t), rules) {
		t.Error(b)
	}
}

// TestImportsAreChecked shows that the check above can fail.
func TestImportsAreChecked(t *testing.T) {
	for name, p := range map[string]pkg{
		"root imports a store":         {ImportPath: module, Imports: []string{module + "/store/memstore"}},
		"root imports the server":      {ImportPath: module, Imports: []string{module + "/server"}},
		"contract imports a helper":    {ImportPath: module + "/store", Imports: []string{module + "/internal/clock"}},
		"contract's test has a store":  {ImportPath: module + "/store", XTestImports: []string{module + "/store/memstore"}},
		"store imports another":        {ImportPath: module + "/store/memstore", Imports: []string{module + "/store/diskstore"}},
		"store imports a foreign one":  {ImportPath: module + "/store/memstore", Imports: []string{"example.com/x"}},
		"store uses cgo":               {ImportPath: module + "/store/diskstore", Imports: []string{"C"}},
		"server imports a store":       {ImportPath: module + "/server/metrics", Imports: []string{module + "/store/diskstore"}},
		"suite outside tests":          {ImportPath: module + "/cmd/duetime", Imports: []string{module + "/store/storetest"}},
		"servers outside tests":        {ImportPath: module + "/store/memstore", Imports: []string{module + "/internal/testserver"}},
		"helper imports the root":      {ImportPath: module + "/internal/batch", Imports: []string{module}},
		"dispatcher imports a batcher": {ImportPath: module + "/internal/dispatch", Imports: []string{module + "/internal/batch"}},
		"unknown folder":               {ImportPath: module + "/tools/x"},
		"example imports a helper":     {ImportPath: module + "/examples/x", Imports: []string{module + "/internal/clock"}},
	} {
		if len(breaches([]pkg{p}, rules)) == 0 {
			t.Errorf("%s: not noticed", name)
		}
	}
	good := pkg{
		ImportPath: module, Imports: []string{"context", module + "/store", module + "/internal/batch"},
		XTestImports: []string{module + "/store/memstore", module + "/store/storetest"},
	}
	if found := breaches([]pkg{good}, rules); len(found) > 0 {
		t.Error("a good package: ", found)
	}
}
