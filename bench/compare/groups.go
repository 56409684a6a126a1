package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"

	"github.com/duetime/duetime/store/diskstore"
)

// group is a set of systems that are measured side by side, taking turns.
type group struct {
	name   string
	title  string
	jobs   []string
	within []contestant
	single func(ctx context.Context) (system, error) // whose store is looked at alone: backlog, herd; nil: none
}

const fastHands = 256

func openOurDisk(hands int) func(context.Context) (system, error) {
	return func(context.Context) (system, error) {
		dir, remove, err := tempDir()
		if err != nil {
			return nil, err
		}
		st, err := diskstore.Open(dir, nil)
		if err != nil {
			remove()
			return nil, err
		}
		return newOurs(st, hands, remove), nil
	}
}

func groups() []group {
	all := []string{jobSingle, jobBatch, jobDrain, jobLate}
	scheduling := []string{jobSingle, jobBatch}
	return []group{
		{
			name: "redis", title: "Redis, append-only file synced every second", jobs: append(all, jobMemory), single: openOurRedis(fastHands),
			within: []contestant{
				{name: "duetime redisstore", setting: "defaults", ours: true, open: openOurRedis(0)},
				{name: "duetime redisstore", setting: "256 hands", ours: true, fast: true, jobs: []string{jobDrain}, open: openOurRedis(fastHands)},
				{name: "asynq", setting: "defaults", jobs: []string{jobSingle, jobDrain, jobLate, jobMemory}, open: openAsynq(asynq.Config{})},
				{
					name: "asynq", setting: "concurrency 64, checks each 10 ms", fast: true, jobs: []string{jobDrain, jobLate},
					open: openAsynq(asynq.Config{Concurrency: 64, DelayedTaskCheckInterval: 10 * time.Millisecond, TaskCheckInterval: 10 * time.Millisecond}),
				},
				{name: "sorted set and Lua", setting: "1 poller, 10 at a time, each 100 ms", open: openSortedSet(1, 10, 100*time.Millisecond)},
				{name: "sorted set and Lua", setting: "2 pollers, 100 at a time, each 1 ms", fast: true, jobs: []string{jobDrain, jobLate}, open: openSortedSet(2, 100, time.Millisecond)},
			},
		},
		{
			name: "disk", title: "The embedded store, in process", jobs: all, single: openOurDisk(fastHands),
			within: []contestant{
				{name: "duetime diskstore", setting: "every Schedule synced", ours: true, open: openOurDisk(0)},
				{name: "duetime diskstore", setting: "256 hands", ours: true, fast: true, jobs: []string{jobDrain}, open: openOurDisk(fastHands)},
				{name: "beanstalkd", setting: "in memory only", open: openBeanstalkd(false)},
				{name: "beanstalkd", setting: "binlog synced each 50 ms", jobs: []string{jobSingle, jobBatch, jobDrain}, open: openBeanstalkd(false, "-b")},
				{name: "beanstalkd", setting: "every put synced (-f0)", jobs: []string{jobSingle}, open: openBeanstalkd(false, "-b", "-f0")},
				{name: "beanstalkd", setting: "tasks due at whole seconds after the put", fast: true, jobs: []string{jobLate}, open: openBeanstalkd(true)},
			},
		},
		{
			name: "server", title: "The embedded store behind duetime serve", jobs: []string{jobSingle, jobBatch, jobDrain, jobLate},
			within: []contestant{
				{name: "duetime serve", setting: "one POST a task", ours: true, jobs: []string{jobSingle}, open: openPlainServer},
				{name: "duetime serve", setting: "by the client library", ours: true, open: openServer(0)},
				{name: "duetime serve", setting: "100 hands", ours: true, fast: true, jobs: []string{jobDrain}, open: openServer(100)},
				{name: "net/http", setting: "a JSON echo", jobs: []string{jobSingle}, open: openEcho},
				{name: "beanstalkd", setting: "binlog synced each 50 ms", jobs: []string{jobSingle, jobBatch, jobDrain}, open: openBeanstalkd(false, "-b")},
				{name: "beanstalkd", setting: "in memory only", jobs: []string{jobDrain, jobLate}, open: openBeanstalkd(false)},
			},
		},
		{
			name: "mysql", title: "MariaDB, every commit synced; River on PostgreSQL, the same", jobs: all, single: openOurMySQL(fastHands),
			within: []contestant{
				{name: "duetime mysqlstore", setting: "defaults", ours: true, open: openOurMySQL(0)},
				{name: "duetime mysqlstore", setting: "256 hands", ours: true, fast: true, jobs: []string{jobDrain}, open: openOurMySQL(fastHands)},
				{name: "a table, SKIP LOCKED", setting: "1 poller, 10 at a time, each 100 ms", open: openTable(1, 10, 100*time.Millisecond)},
				{name: "a table, SKIP LOCKED", setting: "4 pollers, 100 at a time, each 5 ms", fast: true, jobs: []string{jobDrain, jobLate}, open: openTable(4, 100, 5*time.Millisecond)},
				{name: "River", setting: "defaults, 100 workers", open: openRiver(river.QueueConfig{MaxWorkers: 100}, 0, 0)},
				{
					name: "River", setting: "2,000 workers, fetches each 1 ms", fast: true, jobs: []string{jobDrain, jobLate},
					open: openRiver(river.QueueConfig{MaxWorkers: 2000}, time.Millisecond, 5*time.Millisecond),
				},
			},
		},
		{
			name: "tiered", title: "MariaDB with Redis before it, beside each alone", jobs: []string{jobSingle, jobDrain, jobLate},
			within: []contestant{
				{name: "duetime tieredstore", setting: "defaults", ours: true, open: openOurTiered(0)},
				{name: "duetime tieredstore", setting: "256 hands", ours: true, fast: true, jobs: []string{jobDrain}, open: openOurTiered(fastHands)},
				{name: "duetime mysqlstore", setting: "defaults", open: openOurMySQL(0)},
				{name: "duetime mysqlstore", setting: "256 hands", fast: true, jobs: []string{jobDrain}, open: openOurMySQL(fastHands)},
				{name: "duetime redisstore", setting: "defaults", open: openOurRedis(0)},
				{name: "duetime redisstore", setting: "256 hands", fast: true, jobs: []string{jobDrain}, open: openOurRedis(fastHands)},
			},
		},
		{
			name: "rabbit", title: "RabbitMQ, durable queues, with confirms", jobs: scheduling,
			within: []contestant{
				{name: "duetime rabbitstore", setting: "defaults (quorum queues)", ours: true, open: openOurRabbit(0)},
				{name: "published straight", setting: "classic queue", open: openPublished("classic")},
				{name: "published straight", setting: "quorum queue", open: openPublished("quorum")},
			},
		},
	}
}

func groupNames() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}
