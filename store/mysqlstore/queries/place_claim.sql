-- By the primary key: no claimer stands in another's way. What somebody else has
-- locked is not waited for.
SELECT {columns} FROM {task} WHERE ? ORDER BY seq FOR UPDATE SKIP LOCKED
