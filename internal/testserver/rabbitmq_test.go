package testserver_test

import (
	"strings"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	r := testserver.RabbitMQ(t, nil)
	if _, err := r.Ctl("add_vhost", "kept"); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	out, err := r.Ctl("list_vhosts")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "kept") {
		t.Errorf("after a kill there are the virtual hosts %q", out)
	}
}
