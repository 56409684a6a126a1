package store_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"

	"github.com/duetime/duetime/store"
)

func parts() []store.ReceiptParts {
	return []store.ReceiptParts{
		{Queue: "q", ID: "1", Attempt: 1, Token: 1},
		{Queue: strings.Repeat("q", store.MaxQueueBytes), ID: strings.Repeat("😀", 63), Shard: math.MaxUint32, Generation: math.MaxUint32, Attempt: math.MaxUint32, Token: math.MaxUint64},
		{Queue: "a:b", ID: "c:d {e}/%", Generation: 300, Attempt: 128},
	}
}

func TestReceiptsComeBack(t *testing.T) {
	for _, p := range parts() {
		r := p.Encode()
		for _, c := range []byte(r) {
			if c <= ' ' || c > '~' {
				t.Errorf("receipt %q is not printable ASCII", r)
			}
		}
		if got, err := r.Parse(); err != nil || got != p {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
	}
}

// A receipt is passed from program to program: one that was damaged on its way
// must not name another task.
func TestDamagedReceiptsAreRefused(t *testing.T) {
	for _, p := range parts() {
		r := string(p.Encode())
		for i := range r {
			for _, c := range []byte{'A', '_', '9', ' ', '='} {
				bad := store.Receipt(r[:i] + string(c) + r[i+1:])
				if got, err := bad.Parse(); err == nil && got != p {
					t.Errorf("%q, changed at %d, is read as %+v", r, i, got)
				} else if err != nil && field(t, err) != "receipt" {
					t.Error(err)
				}
			}
			if _, err := store.Receipt(r[:i]).Parse(); field(t, err) != "receipt" {
				t.Errorf("%q, cut at %d, is read", r, i)
			}
		}
	}
	for _, bad := range []store.Receipt{"", "x", "nonsense", store.Receipt(strings.Repeat("A", 100_000)), "\x00"} {
		if _, err := bad.Parse(); field(t, err) != "receipt" {
			t.Errorf("%.20q is read", bad)
		}
	}
}

func FuzzReceipt(f *testing.F) {
	for _, p := range parts() {
		b, err := base64.RawURLEncoding.DecodeString(string(p.Encode()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := store.Receipt(base64.RawURLEncoding.EncodeToString(b))
		p, err := r.Parse()
		if err != nil {
			field(t, err)
			return
		}
		if again, err := p.Encode().Parse(); err != nil || again != p {
			t.Errorf("%+v comes back as %+v, %v", p, again, err)
		}
	})
}
