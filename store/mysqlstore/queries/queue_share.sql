-- Every transaction that changes tasks holds this lock until it ends, so that the
-- counting of Stats, which needs the queue for itself, finds none half done.
SELECT id, name, version, counted, settings FROM {queue} WHERE id IN (?) ORDER BY id LOCK IN SHARE MODE
