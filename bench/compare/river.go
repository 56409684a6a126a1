package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSystem is River on PostgreSQL.
type riverSystem struct {
	server *process
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts
	queue  river.QueueConfig
	config river.Config
}

type riverArgs struct {
	Body string `json:"body"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "compare" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	on func([]byte)
}

// Work implements river.Worker.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.on([]byte(job.Args.Body))
	return nil
}

func openRiver(queue river.QueueConfig, cooldown, poll time.Duration) func(context.Context) (system, error) {
	return func(ctx context.Context) (_ system, err error) {
		server, err := startPostgres()
		if err != nil {
			return nil, err
		}
		r := &riverSystem{server: server, queue: queue, config: river.Config{
			Logger: slog.New(slog.DiscardHandler), FetchCooldown: cooldown, FetchPollInterval: poll,
		}}
		defer func() {
			if err != nil {
				r.close()
			}
		}()
		config, err := pgxpool.ParseConfig("postgres://postgres@" + server.addr + "/postgres?sslmode=disable")
		if err != nil {
			return nil, err
		}
		config.MaxConns = 40
		if r.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
		for range 100 { // it listens before it serves
			if err = r.pool.Ping(ctx); err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return nil, err
		}
		migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), nil)
		if err != nil {
			return nil, err
		}
		if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return nil, err
		}
		insert := r.config
		r.client, err = river.NewClient(riverpgxv5.New(r.pool), &insert)
		return r, err
	}
}

func (r *riverSystem) reset(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, "TRUNCATE river_job")
	return err
}

func (r *riverSystem) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	options := func(i int) *river.InsertOpts { return &river.InsertOpts{ScheduledAt: due(i)} }
	if to-from == 1 {
		_, err := r.client.Insert(ctx, riverArgs{string(payload(from, due(from)))}, options(from))
		return err
	}
	jobs := make([]river.InsertManyParams, to-from)
	for i := range jobs {
		jobs[i] = river.InsertManyParams{Args: riverArgs{string(payload(from+i, due(from+i)))}}
		// Jobs that are due already are not scheduled but available at once.
		if due(from + i).After(time.Now()) {
			jobs[i].InsertOpts = options(from + i)
		}
	}
	_, err := r.client.InsertManyFast(ctx, jobs)
	return err
}

func (r *riverSystem) consume(ctx context.Context, on func([]byte), _ func()) (func(), error) {
	// As autovacuum does before long.
	if _, err := r.pool.Exec(ctx, "ANALYZE river_job"); err != nil {
		return nil, err
	}
	config := r.config
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverWorker{on: on})
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: r.queue}
	client, err := river.NewClient(riverpgxv5.New(r.pool), &config)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = client.StopAndCancel(ctx)
	}, nil
}

func (r *riverSystem) left(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&n)
	return n, err
}

func (r *riverSystem) close() {
	if r.pool != nil {
		r.pool.Close()
	}
	r.server.end()
}
