-- What there is: queues, the place from which claims look for ready tasks, the
-- counters, and the tasks. Statements are separated by lines of two hyphens.

-- A queue's name, its settings as JSON with their version, and how far Stats has
-- counted: the tally's column ahead has the waiting tasks that are due before it.
CREATE TABLE IF NOT EXISTS {queue} (
    id       INT UNSIGNED    NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name     VARBINARY(100)  NOT NULL,
    version  BIGINT          NOT NULL DEFAULT 0,
    settings BLOB            NULL,
    counted  BIGINT          NOT NULL DEFAULT 0,
    UNIQUE KEY by_name (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
--
-- Whoever claims from a queue locks its row here first, so that claimers follow
-- each other instead of stepping over each other's locks. No waiting task lies
-- before (pos_at, pos_seq), and no lease ends before lease_at, but for those that
-- the tally's columns early and early_lease tell of.
CREATE TABLE IF NOT EXISTS {turn} (
    queue_id INT UNSIGNED    NOT NULL PRIMARY KEY,
    pos_at   BIGINT          NOT NULL DEFAULT 0,
    pos_seq  BIGINT UNSIGNED NOT NULL DEFAULT 0,
    lease_at BIGINT          NOT NULL DEFAULT 0
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
--
-- The counters of a queue are the sums over its rows here. Each transaction adds
-- to one of a few rows, so that none is hot. Those in a transaction of the
-- user's own, which may stay open for long, add rows with a large shard, and at,
-- by which it is told whether they count as ahead.
CREATE TABLE IF NOT EXISTS {tally} (
    queue_id    INT UNSIGNED    NOT NULL,
    shard       BIGINT UNSIGNED NOT NULL,
    waiting     BIGINT          NOT NULL DEFAULT 0,
    ahead       BIGINT          NOT NULL DEFAULT 0,
    leased      BIGINT          NOT NULL DEFAULT 0,
    dead        BIGINT          NOT NULL DEFAULT 0,
    early       BIGINT          NOT NULL DEFAULT 9223372036854775807,
    early_lease BIGINT          NOT NULL DEFAULT 9223372036854775807,
    at          BIGINT          NULL,
    PRIMARY KEY (queue_id, shard)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
--
-- state is 0 waiting, 1 leased, 2 dead. at is what the state is ordered by: the due
-- time of a task that waits or is dead, the end of the lease of one that is leased.
-- Names of workers that are longer than the column are in worker_long: a row that
-- grows while it is leased costs as much again. Times are milliseconds since 1970 in UTC. seq is the order of scheduling. Headers
-- and payloads of some size (big is 1) are in large, which is read only for those
-- that are handed out: the length of the headers as a varint, headers, payload.
CREATE TABLE IF NOT EXISTS {task} (
    seq          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id     INT UNSIGNED    NOT NULL,
    state        TINYINT         NOT NULL,
    at           BIGINT          NOT NULL,
    due          BIGINT          NOT NULL,
    created      BIGINT          NOT NULL,
    generation   BIGINT          NOT NULL DEFAULT 0,
    failures     BIGINT          NOT NULL DEFAULT 0,
    lost         BIGINT          NOT NULL DEFAULT 0,
    max_attempts BIGINT          NOT NULL DEFAULT 0,
    token        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    size         INT UNSIGNED    NOT NULL,
    id           VARBINARY(255)  NOT NULL,
    worker       BINARY(32)      NOT NULL DEFAULT '',
    worker_long  VARBINARY(255)  NULL,
    big          TINYINT         NOT NULL DEFAULT 0,
    headers      VARBINARY(1000) NULL,
    payload      VARBINARY(2000) NULL,
    last_error   BLOB            NULL,
    large        LONGBLOB        NULL,
    UNIQUE KEY by_id (queue_id, id),
    KEY by_at (queue_id, state, at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
