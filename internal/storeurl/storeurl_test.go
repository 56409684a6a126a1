package storeurl

import "testing"

func TestShown(t *testing.T) {
	for url, want := range map[string]string{
		"redis://user:se:c@ret@host:1/0":                   "redis://user:xxxxx@host:1/0",
		"redis+sentinel://h/m?sentinel_password=secret&x=": "redis+sentinel://h/m?sentinel_password=xxxxx&x=",
		"mysql://u:%zz@h/db":                               "mysql://u:xxxxx@h/db",
		"http://127.0.0.1:7333":                            "http://127.0.0.1:7333",
		"http://u@h":                                       "http://u@h",
		"embedded:/a@b:c":                                  "embedded:/a@b:c",
		"tiered:secret":                                    "tiered:xxxxx",
		"tiered:?secret&window=5m":                         "tiered:?xxxxx&window=5m",
		"tiered:?hot=redis%3A%2F%2Fu%3Asecret%40h%3A1%3Fsentinel_password%3Dsecret&cold=mysql://u:secret@h/d&window=5m"://
		"tiered:?hot=redis%3A%2F%2Fu%3Axxxxx%40h%3A1%3Fsentinel_password%3Dxxxxx&cold=mysql%3A%2F%2Fu%3Axxxxx%40h%2Fd&window=5m",
	} {
		if got := Shown(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}
