-- The store's clock, in microseconds since 1970. UTC_TIMESTAMP does not depend on
-- the session's time zone. It stands still within a statement, so it is asked for
-- by one of its own, after those that may have to wait for a lock.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
