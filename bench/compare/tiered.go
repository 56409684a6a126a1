package main

import (
	"context"

	"github.com/duetime/duetime/store/mysqlstore"
	"github.com/duetime/duetime/store/redisstore"
	"github.com/duetime/duetime/store/tieredstore"
)

// openOurTiered opens a MySQL with a Redis before it, each with the settings of its own
// group.
func openOurTiered(hands int) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		maria, err := startMariaDB()
		if err != nil {
			return nil, err
		}
		redis, err := startRedis()
		if err != nil {
			maria.Close()
			return nil, err
		}
		end := func() { redis.Close(); maria.Close() }
		cold, err := mysqlstore.Open(ctx, "mysql://root@"+maria.Addr+"/"+maria.Database, nil)
		if err != nil {
			end()
			return nil, err
		}
		st, err := tieredstore.Open(ctx, cold, func(ctx context.Context) (tieredstore.Hot, error) {
			hot, err := redisstore.Open(ctx, &redisstore.Options{Addrs: []string{redis.Addr}})
			if err != nil {
				return nil, err
			}
			return hot.Windows(), nil
		}, nil)
		if err != nil {
			_ = cold.Close()
			end()
			return nil, err
		}
		return newOurs(st, hands, end), nil
	}
}
