package diskstore

import "container/heap"

// earlySet holds the pending tasks that lie before their queue's cursor: those
// whose lease ran out or was released, and those scheduled with a due time that
// the cursor had passed. Moving the cursor back for each of them would make the
// next claim walk over everything that was removed in between.
//
// It is exact: removing takes the task out of the map at once and out of the
// heap when it comes up.
type earlySet struct {
	due  map[uint64]int64 // by sequence number
	heap posHeap
}

// earlyMax bounds the set; at the bound the queue moves its cursor back and
// forgets the set, one walk for so many tasks.
const earlyMax = 1 << 16

func (e *earlySet) len() int { return len(e.due) }

func (e *earlySet) add(p pos) {
	if e.due == nil {
		e.due = make(map[uint64]int64)
	}
	e.due[p.seq] = p.due
	heap.Push(&e.heap, p)
}

func (e *earlySet) remove(p pos) {
	delete(e.due, p.seq)
	if len(e.due) == 0 {
		e.clear()
	}
}

// min is the first task of the set.
func (e *earlySet) min() (pos, bool) {
	for len(e.heap) > 0 {
		if due, ok := e.due[e.heap[0].seq]; ok && due == e.heap[0].due {
			return e.heap[0], true
		}
		heap.Pop(&e.heap)
	}
	return pos{}, false
}

func (e *earlySet) clear() {
	clear(e.due)
	e.heap = e.heap[:0]
}

type posHeap []pos

func (h posHeap) Len() int           { return len(h) }
func (h posHeap) Less(i, j int) bool { return h[i].less(h[j]) }
func (h posHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *posHeap) Push(x any)        { *h = append(*h, x.(pos)) }
func (h *posHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
