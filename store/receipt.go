package store

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// Receipt is an opaque token that names one lease. It is printable ASCII
// without spaces and outlives a restart of the store.
type Receipt string

// ReceiptParts is what a receipt says, for stores to make and read them.
type ReceiptParts struct {
	Queue      string
	ID         string
	Shard      uint32
	Generation uint32
	Attempt    uint32

	// Token is unique to the lease. The other fields do not tell two leases of
	// a task apart: one that was released is leased again with the same attempt,
	// and one that was cancelled may be scheduled again with generation 0.
	Token uint64
}

const receiptVersion = 1

// Encode makes a receipt.
func (p ReceiptParts) Encode() Receipt {
	var stack [512]byte
	b := append(stack[:0], receiptVersion)
	b = binary.AppendUvarint(b, uint64(len(p.Queue)))
	b = append(b, p.Queue...)
	b = binary.AppendUvarint(b, uint64(len(p.ID)))
	b = append(b, p.ID...)
	b = binary.AppendUvarint(b, uint64(p.Shard))
	b = binary.AppendUvarint(b, uint64(p.Generation))
	b = binary.AppendUvarint(b, uint64(p.Attempt))
	b = binary.LittleEndian.AppendUint64(b, p.Token)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return Receipt(base64.RawURLEncoding.EncodeToString(b))
}

// Parse reads a receipt. The error is an *InputError: the text is no receipt, or
// was damaged on its way. A receipt of a lease that has ended parses well.
func (r Receipt) Parse() (ReceiptParts, error) {
	var p ReceiptParts
	bad := func(problem string) (ReceiptParts, error) {
		return ReceiptParts{}, inputError("receipt", string(r), problem)
	}
	if r == "" {
		return bad("is empty")
	}
	if len(r) > 1024 {
		return bad("is not a receipt of this system: too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(string(r))
	if err != nil || len(b) < 5 {
		return bad("is not a receipt of this system")
	}
	body, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(sum) {
		return bad("is not a receipt of this system, or was changed or cut on its way")
	}
	if body[0] != receiptVersion {
		return bad("is of a version that this program does not know")
	}
	body = body[1:]
	ok := true
	number := func(limit uint64) uint64 {
		n, size := binary.Uvarint(body)
		if size <= 0 || n > limit {
			ok = false
			return 0
		}
		body = body[size:]
		return n
	}
	text := func() string {
		n := number(uint64(len(body)))
		if !ok || n > uint64(len(body)) {
			ok = false
			return ""
		}
		s := string(body[:n])
		body = body[n:]
		return s
	}
	p.Queue, p.ID = text(), text()
	p.Shard = uint32(number(1<<32 - 1))
	p.Generation = uint32(number(1<<32 - 1))
	p.Attempt = uint32(number(1<<32 - 1))
	if !ok || len(body) != 8 {
		return bad("is not a receipt of this system")
	}
	p.Token = binary.LittleEndian.Uint64(body)
	return p, nil
}
