// Package tieredstore keeps tasks in two stores: all of them in a cold one, which
// has the truth (MySQL), and the order of those that come next also in a hot one,
// which is fast to ask and may be lost at any moment (Redis).
//
//	cold, err := mysqlstore.Open(ctx, "mysql://…", nil)
//	s, err := tieredstore.Open(ctx, cold, openHot, nil)
//	client := duetime.NewClient(s, nil)
//
// # How it works
//
// The hot store has, for each queue that somebody claims from, a window: the numbers
// of the tasks that become claimable within the next five minutes, and when. Nothing
// else: no payload, no state, no lease. A claim takes numbers from the window and
// then takes the leases in the truth, in one transaction over all of them, by its
// clock. What the truth has no more, or has leased, moved or not yet due, is not
// handed out, whatever the window said. So the window is never believed; it only
// says where to look. All that matters is therefore in three questions: can a task
// that is not to run be handed out (no, by the above), can one be left out that is
// to run, and how late is it then.
//
// # Race by race
//
// Everything that changes a task does so in the truth first, and in the window
// afterwards. A process that dies between the two leaves in the window an entry too
// many, which a claim finds out about and removes, or one too few.
//
//   - A task is scheduled while the window is being loaded. The loader writes down
//     how far it is going to load (the edge) and then reads the truth; who schedules
//     commits and then reads the edge. If the loader's reading was before the commit,
//     so was its writing of the edge, and the other one sees it and puts the task in.
//   - A task is cancelled, replaced or settled while a claimer has its number in
//     hand: the truth decides, whoever is first there.
//   - Two who move a task reach the window in the wrong order: it has the wrong time.
//     Too early, the truth says so to who claims it, and the window is put right. Too
//     late, mending (below) moves it.
//   - A claimer dies between the window and the truth. What it took stays in the
//     window, at the time at which its lease would have ended; mending is sooner.
//   - A claimer dies after the truth: the same entry is the end of the lease. Leases
//     that run out are found by it; an extended one is found to be leased still.
//   - A loader dies in the middle. The edge says how far the window is to reach,
//     another number how far it does: what is missing is loaded by whoever looks
//     after the window next, within two seconds. A window that does not reach to the
//     present is begun again from nothing, under a new number, and a loader of the
//     old one puts nothing in any more. Two loaders of one window do no harm: what is
//     in is not put in again.
//   - The hot store loses the window (emptied, restarted): there is no window, and
//     every claim of that queue goes to the truth, until it is loaded again, at once.
//   - The hot store shows an older window (a failover to a replica that lagged, a
//     restored backup): each answer has the number of the filling and of the last
//     change, and who has seen later ones forgets the window, so that it is loaded
//     again. Where nobody is left who remembers, mending finds what is missing.
//   - The hot store can not be reached, or not from here. Claims go to the truth, and
//     after a call has failed nobody waits for the hot store: it is asked ten times a
//     second whether it is back. The windows of queues in which something was not
//     noted meanwhile are forgotten when it is.
//   - The truth can not be reached: calls return errors, as from the cold store alone.
//   - Clocks: that of this machine and that of the hot store are never asked what
//     time it is. The cold store's decides, and is estimated here between its answers
//     by what has passed, not by what the wall shows. An estimate that is wrong makes
//     a claim late or in vain, never early.
//
// # Mending
//
// One process at a time looks after a window, four times a second, for as long as
// somebody claims or waits; another takes over within two seconds. It moves the
// edge on, loads, and compares the first five hundred tasks that come up within a
// second, and those whose leases have ended, with the window: what is not there is
// put in. So a task that the window lacks is found before it is due, as a rule (one
// that was scheduled in a transaction of the user's own, too), and some 300 ms after
// it at the latest, if not more than that are missing. Besides, once in five
// seconds, each process's next claim of a queue goes to the truth itself.
//
// # What goes to the truth directly
//
// Claims of a queue that is paused or has a release setting, or whose window is not
// loaded; all that reads (Get, List, Stats); settings.
package tieredstore
