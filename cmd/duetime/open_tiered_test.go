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
	got := withoutPassword("tiered:?hot=redis%3A%2F%2Fu%3Asecret%40h%3A1%3Fsentinel_password%3Dsecret&cold=mysql://u:secret@h/d&window=5m")
	if strings.Contains(got, "secret") || !strings.Contains(got, "window=5m") || !strings.Contains(got, "cold=mysql%3A%2F%2Fu%3Axxxxx%40h%2Fd") {
		t.Errorf("shown as %s", got)
	}
}
