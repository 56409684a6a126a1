package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duetime/duetime/store/memstore"
)

// BenchmarkSchedule compares a call that schedules one task with a plain handler
// of net/http that reads a JSON object into a struct and answers with it.
func BenchmarkSchedule(b *testing.B) {
	st := memstore.New(nil)
	defer st.Close()
	srv, err := New(st, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	type task struct {
		ID      string            `json:"id"`
		Payload json.RawMessage   `json:"payload"`
		Delay   string            `json:"delay"`
		Headers map[string]string `json:"headers"`
	}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t task
		if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(t)
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"echo", echo}, {"schedule", srv}} {
		b.Run(c.name, func(b *testing.B) {
			hs := httptest.NewServer(c.handler)
			defer hs.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			defer client.CloseIdleConnections()
			var n atomic.Int64
			b.SetParallelism(16)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := fmt.Sprintf(`{"id":"%s-%d-%d","payload":{"order":1001,"amount":12.5,"buyer":"someone","items":["a","b","c"]},"delay":"30m"}`, c.name, b.N, n.Add(1))
					resp, err := client.Post(hs.URL+"/v1/queues/q/tasks", "application/json", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					if resp.StatusCode != http.StatusCreated {
						text, _ := io.ReadAll(resp.Body)
						b.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}
