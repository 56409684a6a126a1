-- After the commit, so that no lock is held while megabytes are on their way. The
-- token tells apart who was cancelled in that moment.
SELECT seq, large FROM {task} WHERE seq IN (?) AND state = 1 AND token = ?
