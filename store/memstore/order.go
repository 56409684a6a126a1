package memstore

import "math/rand/v2"

// key is a place in an order: an instant in Unix milliseconds, then the sequence
// number that tells apart what has the same instant.
type key struct {
	at  int64
	seq uint64
}

func (k key) less(o key) bool { return k.at < o.at || k.at == o.at && k.seq < o.seq }

// order keeps tasks sorted by key, and counts them. It is a treap: every
// operation takes logarithmic time, whatever order tasks come in.
type order struct{ root *node }

type node struct {
	key
	task        *task
	priority    uint32
	size        int
	left, right *node
}

func (n *node) len() int {
	if n == nil {
		return 0
	}
	return n.size
}

func (n *node) update() { n.size = n.left.len() + n.right.len() + 1 }

// split cuts a tree into the keys up to and including k, and those after it.
func split(n *node, k key) (upTo, after *node) {
	switch {
	case n == nil:
		return nil, nil
	case k.less(n.key):
		upTo, n.left = split(n.left, k)
		n.update()
		return upTo, n
	default:
		n.right, after = split(n.right, k)
		n.update()
		return n, after
	}
}

// merge joins two trees where all keys of a are before all keys of b.
func merge(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority >= b.priority:
		a.right = merge(a.right, b)
		a.update()
		return a
	default:
		b.left = merge(a, b.left)
		b.update()
		return b
	}
}

func cut(n *node, k key) *node {
	switch {
	case n == nil:
		return nil
	case k.less(n.key):
		n.left = cut(n.left, k)
	case n.key.less(k):
		n.right = cut(n.right, k)
	default:
		return merge(n.left, n.right)
	}
	n.update()
	return n
}

func (o *order) insert(k key, t *task) {
	a, b := split(o.root, k)
	o.root = merge(merge(a, &node{key: k, task: t, priority: rand.Uint32(), size: 1}), b)
}

func (o *order) remove(k key) { o.root = cut(o.root, k) }

func (o *order) len() int { return o.root.len() }

// first is the task with the lowest key, or nil.
func (o *order) first() *task {
	n := o.root
	if n == nil {
		return nil
	}
	for n.left != nil {
		n = n.left
	}
	return n.task
}

// upTo counts the tasks whose instant is not after at.
func (o *order) upTo(at int64) int {
	count := 0
	for n := o.root; n != nil; {
		if n.at <= at {
			count += n.left.len() + 1
			n = n.right
		} else {
			n = n.left
		}
	}
	return count
}

// after calls f with the tasks whose keys are after k, in order, until f says
// false.
func (o *order) after(k key, f func(*task) bool) { walk(o.root, k, f) }

func walk(n *node, k key, f func(*task) bool) bool {
	if n == nil {
		return true
	}
	if k.less(n.key) && (!walk(n.left, k, f) || !f(n.task)) {
		return false
	}
	return walk(n.right, k, f)
}
