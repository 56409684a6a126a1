package mysqlstore

const (
	// shards is how many rows the counters of a queue are spread over.
	shards = 32
	// foldFrom is how many rows of users' transactions may gather before they are
	// folded into the others, and foldRows how many rows are taken at a time.
	foldFrom = 32
	foldRows = 1000
)

// folding tidies the tally of a queue while its rows are locked: rows that users'
// transactions left are added to the others, and the early marks are set back.
type folding struct {
	early, earlyLease int64
	rows              []tallyRow
}

type tallyRow struct {
	shard                        uint64
	waiting, ahead, leased, dead int64
	at                           int64
	dated                        bool // at tells whether it is ahead
}

func newFolding() *folding { return &folding{early: never, earlyLease: never} }

func (f *folding) scan(v values) error {
	f.rows = append(f.rows, tallyRow{
		shard: v.uint(0), waiting: v.int(1), ahead: v.int(2), leased: v.int(3), dead: v.int(4), at: v.int(7), dated: v[7] != nil,
	})
	f.early, f.earlyLease = min(f.early, v.int(5)), min(f.earlyLease, v.int(6))
	return nil
}

// write adds the statements, and what is folded to the counts of the transaction.
func (f *folding) write(l *link, id uint32, c *count, counted int64) {
	var reset, fold []uint64
	for _, r := range f.rows {
		if r.shard < shards {
			reset = append(reset, r.shard)
			continue
		}
		fold = append(fold, r.shard)
		c.waiting += r.waiting
		c.leased += r.leased
		c.dead += r.dead
		switch {
		case !r.dated:
			c.ahead += r.ahead
		case r.at < counted:
			c.ahead += r.waiting
		}
	}
	if len(reset) > 0 {
		l.add("tally_reset", id, reset)
	}
	if len(fold) > 0 {
		l.add("tally_delete", id, fold)
	}
}
