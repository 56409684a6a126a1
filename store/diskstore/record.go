package diskstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/duetime/duetime/store"
)

// record is a task as it lies on disk, apart from its place and its lease.
//
// Version rule: the first byte is the version. A program reads all versions up
// to its own and writes its own; a change of the fields is a new version.
type record struct {
	id          string
	created     int64 // milliseconds since the Unix epoch
	generation  uint32
	failures    uint32
	lost        uint32
	maxAttempts uint32
	headers     map[string]string
	lastError   string
	payload     []byte
}

const recordVersion = 1

var (
	errRecord  = errors.New("record is damaged")
	errGone    = errors.New("record is not there")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func unreadable(err error) bool { return err == errRecord || err == errGone }

func appendText[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (r *record) encode(b []byte) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = appendText(b, r.id)
	b = binary.AppendUvarint(b, uint64(r.created))
	b = binary.AppendUvarint(b, uint64(r.generation))
	b = binary.AppendUvarint(b, uint64(r.failures))
	b = binary.AppendUvarint(b, uint64(r.lost))
	b = binary.AppendUvarint(b, uint64(r.maxAttempts))
	b = binary.AppendUvarint(b, uint64(len(r.headers)))
	if len(r.headers) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.headers)) {
			b = appendText(b, name)
			b = appendText(b, r.headers[name])
		}
	}
	b = appendText(b, r.lastError)
	b = appendText(b, r.payload)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// decode reads a record. The payload and all texts are copies, so that b may be
// reused. Without bodies, payload and headers are left out.
func (r *record) decode(b []byte, bodies bool) error {
	if len(b) < 5 {
		return errRecord
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return errRecord
	}
	if body[0] != recordVersion {
		return errRecord
	}
	d := decoder{b: body[1:]}
	r.id = string(d.text())
	r.created = int64(d.number())
	r.generation = uint32(d.number())
	r.failures = uint32(d.number())
	r.lost = uint32(d.number())
	r.maxAttempts = uint32(d.number())
	r.headers = nil
	if n := d.number(); n > 0 && !d.bad && n <= store.MaxHeaderBytes {
		if bodies {
			r.headers = make(map[string]string, n)
		}
		for range n {
			name, value := d.text(), d.text()
			if bodies {
				r.headers[string(name)] = string(value)
			}
		}
	}
	r.lastError = string(d.text())
	payload := d.text()
	r.payload = nil
	if bodies && len(payload) > 0 {
		r.payload = slices.Clone(payload)
	}
	if d.bad || len(d.b) != 0 {
		return errRecord
	}
	return nil
}

// decoder reads numbers and texts; after the first that is not there it is bad
// and reads zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) text() []byte {
	n := d.number()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	s := d.b[:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.bad, d.b = true, nil
		return 0
	}
	n := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return n
}
