package mysqlsource

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/internal/takeover/takeovertest"
	"github.com/duetime/duetime/store"
)

// one runs an import of one row and returns its task.
func (w *world) one(opts Options, id string) *store.Task {
	w.Helper()
	if r := w.run(opts); r.Left != 0 {
		w.Fatalf("%s: report %+v", opts.DueColumn, r)
	}
	r, err := w.dest.Get(w.ctx, []store.Key{{Queue: queue, ID: id}})
	w.must(err)
	if r[0].Task == nil {
		w.Fatalf("%s: no task %q", opts.DueColumn, id)
	}
	_, err = w.dest.Cancel(w.ctx, []store.CancelRequest{{Queue: queue, ID: id}})
	w.must(err)
	w.exec("DROP TABLE duetime_import_orders")
	return r[0].Task
}

// TestKindsOfTime: each kind of column says the same instant, whatever the zone of
// the server, which is +09:00 here.
func TestKindsOfTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, dt DATETIME(6), ts TIMESTAMP(3) NULL, dd DATE, s INT, ms BIGINT, us BIGINT, ns BIGINT, d DECIMAL(20,4), f DOUBLE) ENGINE=InnoDB`)
	// 2026-12-01 05:06:07.1234 UTC is a moment of 14:06 in the server's zone.
	w.exec("INSERT INTO orders VALUES (18446744073709551615, '2026-12-01 05:06:07.123400', '2026-12-01 14:06:07.123', '2026-12-01', 1796101567, 1796101567123, 1796101567123400, 1796101567123400000, 1796101567.1234, 1796101567.1234)")
	want := time.Date(2026, 12, 1, 5, 6, 7, 124e6, time.UTC)
	whole := want.Truncate(time.Second)
	utc := time.UTC
	shanghai, err := ParseZone("Asia/Shanghai")
	w.must(err)
	for _, c := range []struct {
		column string
		unit   takeover.Unit
		zone   *time.Location
		want   time.Time
	}{
		{"dt", "", utc, want},
		{"dt", "", shanghai, want.Add(-8 * time.Hour)},
		{"ts", "", nil, whole.Add(123 * time.Millisecond)},
		{"dd", "", utc, want.Truncate(24 * time.Hour)},
		{"dd", "", shanghai, want.Truncate(24 * time.Hour).Add(-8 * time.Hour)},
		{"s", "s", nil, whole},
		{"ms", "ms", nil, whole.Add(123 * time.Millisecond)},
		{"us", "us", nil, want},
		{"ns", "ns", nil, want},
		{"d", "s", nil, want},
		{"f", "s", nil, want},
	} {
		opts := options()
		opts.DueColumn, opts.Unit, opts.Zone, opts.PayloadColumn, opts.Where = c.column, c.unit, c.zone, "", ""
		task := w.one(opts, "18446744073709551615")
		if !task.Due.Equal(c.want) || string(task.Payload) != "18446744073709551615" {
			t.Errorf("%s in %v %v: due %v with payload %q, want %v", c.column, c.unit, c.zone, task.Due, task.Payload, c.want)
		}
		opts.Delay, opts.Created = 30*time.Minute, true
		task = w.one(opts, "18446744073709551615")
		if !task.Due.Equal(c.want.Add(opts.Delay)) || !task.Created.Equal(c.want) {
			t.Errorf("%s as time of creation: due %v, created %v", c.column, task.Due, task.Created)
		}
	}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.DueColumn, o.Unit = "dt", "" }, "--zone"},
		{func(o *Options) { o.DueColumn = "dt" }, "--unit"},
		{func(o *Options) { o.DueColumn, o.Unit, o.Zone = "ts", "", utc }, "--zone"},
		{func(o *Options) { o.DueColumn, o.Unit = "ms", "" }, "--unit"},
		{func(o *Options) { o.DueColumn, o.Zone = "ms", utc }, "--zone"},
		{func(o *Options) { o.DueColumn = "x" }, "is no column"},
		{func(o *Options) { o.PayloadColumn = "x" }, "--payload-column"},
		{func(o *Options) { o.Table = "x`; DROP TABLE orders; --" }, "is no table"},
		{func(o *Options) { o.IDColumn = "ms" }, "unique index"},
		{func(o *Options) { o.IDColumn = "f" }, "type double"},
		{func(o *Options) { o.Where = "status =" }, "--where"},
		{func(o *Options) { o.Where = "TRUE; DROP TABLE orders" }, "--where"},
		{func(o *Options) { o.Where = "TRUE) OR (TRUE" }, "--where"},
		{func(o *Options) { o.Where = "TRUE) -- " }, "--where"},
		{func(o *Options) { o.Where = "TRUE) /*" }, "--where"},
		{func(o *Options) { o.Set = "x = " }, "--set"},
	} {
		opts := options()
		opts.DueColumn, opts.PayloadColumn, opts.Where = "ms", "", ""
		c.change(&opts)
		_, err := Open(w.ctx, w.url, opts)
		says(t, err, c.want)
	}
	w.exec("ALTER TABLE orders ENGINE=MyISAM")
	opts := options()
	opts.DueColumn, opts.PayloadColumn, opts.Where, opts.Delete = "ms", "", "", true
	_, err = Open(w.ctx, w.url, opts)
	says(t, err, "InnoDB")
	_, err = Open(w.ctx, "mysql://u:sec@ret@", opts)
	says(t, err, "URL")
	if strings.Contains(err.Error(), "ret") {
		t.Errorf("the password is shown: %v", err)
	}
}

// TestWallClocks: the hour that clocks show twice, and the one that they leave out.
func TestWallClocks(t *testing.T) {
	berlin, err := ParseZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	east, err := ParseZone("+05:45")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		zone *time.Location
		want string
	}{
		{"2027-01-01 12:00:00", berlin, "2027-01-01T11:00:00Z"},
		{"2027-07-01 12:00:00", berlin, "2027-07-01T10:00:00Z"},
		{"2027-03-28 01:59:59", berlin, "2027-03-28T00:59:59Z"},
		{"2027-03-28 02:30:00", berlin, "2027-03-28T01:30:00Z"}, // which is shown as 03:30
		{"2027-03-28 03:00:00", berlin, "2027-03-28T01:00:00Z"},
		{"2027-10-31 01:59:59", berlin, "2027-10-30T23:59:59Z"},
		{"2027-10-31 02:30:00", berlin, "2027-10-31T01:30:00Z"}, // the second time
		{"2027-10-31 03:00:00", berlin, "2027-10-31T02:00:00Z"},
		{"2027-10-31", berlin, "2027-10-30T22:00:00Z"},
		{"2027-01-01 12:00:00.000001", east, "2027-01-01T06:15:00.001Z"},
		{"9999-12-31 23:59:59", time.UTC, "9999-12-31T23:59:59Z"},
		{"0000-00-00 00:00:00", berlin, ""},
		{"0000-00-00", berlin, ""},
		{"1969-12-31 23:59:59", time.UTC, ""},
		{"", time.UTC, ""},
	} {
		got, err := wall(c.text, c.zone)
		if text := got.Format(time.RFC3339Nano); (err != nil) != (c.want == "") || err == nil && text != c.want {
			t.Errorf("%s in %v: %v, %v; want %s", c.text, c.zone, text, err, c.want)
		}
	}
	for _, bad := range []string{"", "Local", "Nowhere/Town", "+8", "08:00", "../x"} {
		if zone, err := ParseZone(bad); err == nil {
			t.Errorf("%q is read as %v", bad, zone)
		}
	}
}

// TestBytes: ids and payloads come as they are, whatever their columns' character set
// and collation; names may be any that the server allows.
func TestBytes(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, c := range []struct{ id, payload, text string }{
		{"VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "LONGBLOB", string(all)},
		{"VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "VARBINARY(300)", string(all)},
		{"VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "LONGTEXT CHARACTER SET utf8mb4", "敏琳张 😀 \x00 \\ ' \" \n"},
		{"VARBINARY(200)", "LONGTEXT CHARACTER SET utf16", "敏琳张 😀"},
		{"CHAR(100) CHARACTER SET latin1 COLLATE latin1_german1_ci", "TEXT CHARACTER SET latin1", "Größe é"},
		{"VARCHAR(200) CHARACTER SET gbk", "TEXT CHARACTER SET gbk", "敏琳张"},
		{"VARCHAR(200) CHARACTER SET utf16", "LONGBLOB", ""},
	} {
		w := newWorld(t)
		w.exec("CREATE TABLE `a ``b.中` (`i d``` " + c.id + " NOT NULL, `at` BIGINT, `päy` " + c.payload + ", UNIQUE KEY (`i d```)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC")
		ids := []string{"x", "y y", "Größe", "z'\"\\`%_"}
		switch {
		case strings.Contains(c.id, "utf8mb4_bin"), strings.Contains(c.id, "VARBINARY"):
			ids = append(ids, "X", "é", "e\u0301", "É", "😀")
		case strings.Contains(c.id, "gbk"):
			ids = []string{"敏", "琳张", "x"}
		case strings.Contains(c.id, "utf8mb4"):
			ids = append(ids, "é", "😀")
		}
		var payload any = c.text
		if strings.Contains(c.payload, "B") && !strings.Contains(c.payload, "CHARACTER") {
			payload = []byte(c.text)
		}
		for _, id := range ids {
			w.exec("INSERT INTO `a ``b.中` VALUES (?, ?, ?)", id, w.dest.Clock.Now().UnixMilli(), payload)
			w.want[id] = takeovertest.Entry{Due: time.UnixMilli(w.dest.Clock.Now().UnixMilli()).UTC(), Payload: c.text}
		}
		opts := options()
		opts.Table, opts.IDColumn, opts.DueColumn, opts.PayloadColumn = "a `b.中", "I D`", "at", "päy"
		opts.Where, opts.Delete, opts.slice = "`at` > 0 -- or else", true, 2
		if r := w.run(opts); r.Moved != int64(len(ids)) || r.Left != 0 {
			t.Errorf("%s: report %+v", c.id, r)
		}
		if n := w.number("SELECT COUNT(*) FROM `a ``b.中`"); n != 0 {
			t.Errorf("%s: %d rows are left", c.id, n)
		}
		w.check()
		if t.Failed() {
			t.Fatal(c)
		}
	}
}

// Some thousand rows go page by page, none twice and none left out.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("CREATE TABLE orders (id VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, at BIGINT, payload VARBINARY(100), status INT DEFAULT 0) ENGINE=InnoDB")
	const n = 5000
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf("('Order-%d', %d, 'p', 0)", i*7919%100_000, w.dest.Clock.Now().UnixMilli()+int64(i%10)))
	}
	w.exec("INSERT INTO orders VALUES " + strings.Join(values, ","))
	opts := withSet(options())
	opts.slice = 0
	if r := w.run(opts); r.Moved != n || r.Left != 0 {
		t.Errorf("report %+v", r)
	}
	if left := w.number("SELECT COUNT(*) FROM orders WHERE status = 0"); left != 0 {
		t.Errorf("%d rows still wait", left)
	}
	stats, err := w.dest.Stats(w.ctx, queue)
	w.must(err)
	if stats.Scheduled+stats.Ready != n {
		t.Errorf("the store has %+v", stats)
	}
}

func TestStateTable(t *testing.T) {
	for name, want := range map[string]string{
		"orders":                "duetime_import_orders",
		strings.Repeat("x", 49): "duetime_import_" + strings.Repeat("x", 49),
		strings.Repeat("x", 50): "duetime_import_" + strings.Repeat("x", 32) + "_" + digest(strings.Repeat("x", 50))[:16],
		strings.Repeat("中", 64): "duetime_import_" + strings.Repeat("中", 32) + "_" + digest(strings.Repeat("中", 64))[:16],
	} {
		if got := StateTable(name); got != want || len([]rune(got)) > 64 {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Ids that are no text have a way, and the message says which: it is tried here.
func TestBinaryIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("CREATE TABLE orders (id BINARY(16) PRIMARY KEY, at BIGINT) ENGINE=InnoDB")
	w.exec("INSERT INTO orders VALUES (X'FF00112233445566778899AABBCCDDEE', 1796101567123)")
	opts := options()
	opts.PayloadColumn, opts.Where = "", ""
	r := w.run(opts)
	if r.Left != 1 || !strings.Contains(r.FirstLeft[0].Why, "HEX(id)") {
		t.Fatalf("%+v", r)
	}
	w.exec("ALTER TABLE orders ADD hex VARCHAR(32) CHARACTER SET ascii AS (HEX(id)) STORED, ADD UNIQUE (hex)")
	opts.IDColumn = "hex"
	if task := w.one(opts, "FF00112233445566778899AABBCCDDEE"); string(task.Payload) != "FF00112233445566778899AABBCCDDEE" {
		t.Errorf("payload %q", task.Payload)
	}
}
