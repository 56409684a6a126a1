package memstore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The order must say what a sorted slice says, whatever is put in and taken out.
func TestOrderIsASortedSlice(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var o order
	var want []key
	compare := func(a, b key) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }
	for seq := range uint64(3000) {
		if len(want) > 0 && rnd.IntN(5) < 2 {
			i := rnd.IntN(len(want))
			o.remove(want[i])
			want = slices.Delete(want, i, i+1)
		} else {
			k := key{rnd.Int64N(100), seq}
			o.insert(k, &task{seq: seq})
			i, _ := slices.BinarySearchFunc(want, k, compare)
			want = slices.Insert(want, i, k)
		}
		if o.len() != len(want) {
			t.Fatalf("after %d steps: %d tasks, want %d", seq, o.len(), len(want))
		}
		if len(want) > 0 && o.first().seq != want[0].seq {
			t.Fatalf("after %d steps: the first is %d, want %d", seq, o.first().seq, want[0].seq)
		}
		at := rnd.Int64N(100)
		upTo := 0
		for _, k := range want {
			if k.at <= at {
				upTo++
			}
		}
		if got := o.upTo(at); got != upTo {
			t.Fatalf("after %d steps: %d tasks up to %d, want %d", seq, got, at, upTo)
		}
	}
	from := key{50, 0}
	start, _ := slices.BinarySearchFunc(want, from, compare)
	o.after(from, func(got *task) bool {
		if start == len(want) || got.seq != want[start].seq {
			t.Fatalf("task %d where the slice has another", got.seq)
		}
		start++
		return true
	})
	if start != len(want) {
		t.Fatalf("stopped at %d of %d", start, len(want))
	}
}
