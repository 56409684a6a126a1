package main

import (
	"context"
	"strings"
	"testing"
)

func TestTieredURLs(t *testing.T) {
	for _, url := range []string{
		"tiered:", "tiered:?", "tiered:secret", "tiered:?hot=redis://:secret@h&cold=mysql://u:secret@h/d&other=secret",
		"tiered:?hot=redis://:secret@h", "tiered:?cold=mysql://u:secret@h/d", "tiered:?hot=%zzsecret",
		"tiered:?hot=mysql://u:secret@h/d&cold=redis://:secret@h", "tiered:?hot=redis://h&cold=mysql://u:sec&secret@h/d",
		"tiered:?hot=redis://:secret@h&cold=mysql://u:secret@h/d&window=secret-",
	} {
		_, err := openStore(context.Background(), url, false)
		if err == nil {
			t.Errorf("%s was opened", url)
		} else if strings.Contains(err.Error(), "secret") && !strings.Contains(url, "window=") {
			t.Errorf("%s: the error shows a password: %v", url, err)
		}
	}
}
