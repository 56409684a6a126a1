package main

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/redisstore"
)

// footprintFunc tells what a store takes of memory and disk, in bytes; negative is
// not known.
type footprintFunc func(context.Context) (memory, disk int64, err error)

// footprintOf finds out how the store of a URL can be asked what it takes. It
// returns nil where it can not.
func footprintOf(ctx context.Context, rawURL string) (_ footprintFunc, done func(), err error) {
	none := func() {}
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch scheme {
	case "memory":
		return func(context.Context) (int64, int64, error) { return heap(), -1, nil }, none, nil
	case "embedded":
		dir, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
		return func(context.Context) (int64, int64, error) {
			disk, err := folderSize(dir)
			return heap(), disk, err
		}, none, nil
	case "redis", "rediss":
		return redisFootprint(rawURL)
	case "mysql":
		return mysqlFootprint(rawURL)
	}
	return nil, none, nil
}

// heap is what this program holds, with the store in it.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		// A file that the store removed meanwhile takes nothing.
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}

func redisFootprint(rawURL string) (footprintFunc, func(), error) {
	o, err := redisstore.ParseURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: o.Addrs, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLS,
		ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (int64, int64, error) {
		info, err := client.Do(ctx, client.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			return -1, -1, nil // a user may lack the right; that is no reason to stop
		}
		for line := range strings.Lines(info) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				memory, err := strconv.ParseInt(text, 10, 64)
				return memory, -1, err
			}
		}
		return -1, -1, nil
	}, client.Close, nil
}

// mysqlFootprint asks for the tables' pages.
func mysqlFootprint(rawURL string) (footprintFunc, func(), error) {
	name, err := mysqlstore.DataSource(rawURL)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("mysql", name)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (int64, int64, error) {
		var names string
		err := db.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(CONCAT('`', table_name, '`')), '') FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'").Scan(&names)
		if err != nil || names == "" {
			return -1, -1, nil
		}
		// Its answer is a table; only that it was carried out counts. The server's
		// figures are old until then.
		if rows, err := db.QueryContext(ctx, "ANALYZE TABLE "+names); err == nil {
			for rows.Next() {
			}
			_ = rows.Close()
		}
		var disk int64
		err = db.QueryRowContext(ctx, "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'").Scan(&disk)
		if err != nil {
			return -1, -1, fmt.Errorf("what the tables take: %w", err)
		}
		return -1, disk, nil
	}, func() { _ = db.Close() }, nil
}
