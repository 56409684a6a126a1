// Package rabbitstore keeps tasks in RabbitMQ 3.10 or later, for teams that run it
// already and want no second system.
//
//	st, err := rabbitstore.Open(ctx, "amqp://user:password@host:5672/", nil)
//
// # The ladder
//
// AMQP can not deliver a message later. What it has are queues whose messages die
// after a fixed time, and go to an exchange then; but a queue lets only its head
// die, so that a long wait at the head holds up short ones behind it. So every wait
// needs a queue of its own, and there are many waits.
//
// Any number is a sum of powers of two. There are 37 queues, the rungs of a ladder. In
// the lowest a message waits 40 ms, in the highest 31 days; each power of two has a
// rung, and up to 41 s there is one more between each two, 60 ms, 120 ms and so
// on, which saves a third of the hops. A message takes those that make up its delay,
// the longest first: it is published into the first, dies from rung to
// rung, and comes into its task's own queue at the end. All messages in one rung
// wait equally long, so nothing waits behind something longer, and the number of
// queues is the same however many delays there are. All of duetime's queues share
// the ladder.
//
// The way is in the message: its routing keys (the published one and those of its
// CC header) name each hop, such as 5120>320 for "from the rung of 5120 ms to that of
// 320 ms", and each rung
// dead-letters to an exchange of its own that knows the keys from there. These are
// direct exchanges, where a route is looked up and not searched for. A delay longer
// than the highest rung waits there again and again: a message that arrives a
// second or more before it is due is sent up the ladder once more by whoever
// receives it. So there is no longest delay.
//
// # When a task is due
//
// RabbitMQ tells clients no clock. The store's clock is that of the process: that
// which schedules adds the delay, writes the due time into the message, and works
// out how long it has to wait; that which receives hands it out when the due time
// has come by its own clock, never before. Keep the hosts' clocks together, as NTP
// does.
//
// A rung is never early and always a little late. So a message is aimed to arrive
// before it is due, by 20 ms and by 10 for each of its hops, and 40 ms earlier at most;
// the process that received it holds it to the millisecond. It holds no more messages
// than there are hands free for tasks. A message that is not held, since no hand is
// free, stays in its queue for another process.
//
// # Nothing is lost
//
// Messages are persistent, published mandatory and confirmed before Schedule
// returns. Quorum queues, the default, hand a message from rung to rung at least
// once: it leaves one when the next has confirmed it. Classic queues (an option)
// cost the broker less and hand on unconfirmed: kill -9 of the broker loses what is
// between two rungs and what comes due while it is down, since RabbitMQ lets
// queues expire before it has their exchanges when it starts. A task whose queue
// was deleted by hand is kept among the strays by an alternate exchange, and goes
// on when any store next looks, within ten seconds.
//
// Where a task goes back (Retry, Snooze, Release, the end of a lease) it is
// published anew and confirmed, and then the old message is acked. A process that
// dies between the two leaves both; the order that would leave none is not an
// option, and AMQP's transactions do not span two queues when the broker dies. The
// ack is sent the moment the confirmation is there, and the older one carries a
// count of one more lost, so that the repetition shows.
//
// # Leases
//
// A claimed task is a message that is not acked. The store counts the lease's time
// itself: when it ends, the task goes back with one more lost, though the worker's
// process lives and its connection is good. When the process dies, the broker gives
// its messages to others at once, marked as redelivered; whoever gets one puts the
// count into the message before it hands it out. AMQP ties acks to the channel, so
// a receipt is good in the process that claimed, for as long as the connection
// holds, and stale afterwards. RabbitMQ closes channels that hold a message for
// longer than its consumer_timeout, 30 minutes unless it is set otherwise: set it
// to more than your longest handler takes.
//
// Workers get tasks by ClaimWait: the broker sends them as they become ready, never
// more than hands are free. Claim takes what is there and does not wait.
//
// # What RabbitMQ can not do
//
// Cancel, Reschedule, Get, List, telling ids apart, Purge of what is not dead. They
// return store.ErrUnsupported, and a program that needs one says so in Options.Need
// or the URL and fails when it opens the store. The way out for an order that is
// paid: let the handler look whether it still is to be cancelled. Tasks come out as
// they come due, not exactly in the order of due times. Stats counts what is ready
// and dead, and what this process has leased.
//
// # Settings
//
// A queue's settings, and the names of queues, are kept in a stream, a log that all
// stores follow; see conf.
package rabbitstore
