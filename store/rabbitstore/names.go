package rabbitstore

// version is that of the topology. What changes it in a way that old programs
// can not live with gets a new one, and both stand side by side until the old
// one is empty.
const version = "v1"

// names makes the names of queues and exchanges.
type names struct {
	prefix string // of all
	space  string // of what is not the ladder's; empty but in tests, which share one ladder
}

func (n names) arrivals() string { return n.prefix + "." + version + ".arrivals" }
func (n names) strays() string   { return n.prefix + "." + version + ".strays" }
func (n names) log() string      { return n.prefix + "." + version + ".log" + n.space }
func (n names) ready(queue string) string {
	return n.prefix + "." + version + ".ready." + n.space + queue
}

func (n names) dead(queue string) string {
	return n.prefix + "." + version + ".dead." + n.space + queue
}

// arrive is the key by which what has arrived finds its queue.
func (n names) arrive(queue string) string { return "=" + n.space + queue }
