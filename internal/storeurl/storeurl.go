// Package storeurl shows store URLs to people: in messages, logs and errors.
package storeurl

import (
	"net/url"
	"regexp"
	"strings"
)

// mask stands where a password stood.
const mask = "xxxxx"

// option is a password among the options of a URL.
var option = regexp.MustCompile(`([?&][a-z_]*password=)[^&]*`)

// Shown is a store's URL without its passwords. It works on text, so that it serves
// for URLs that can not be parsed too: what is refused is shown the same way.
func Shown(rawURL string) string {
	if strings.HasPrefix(rawURL, "tiered:") {
		return tiered(rawURL)
	}
	rawURL = option.ReplaceAllString(rawURL, "${1}"+mask)
	scheme, rest, ok := strings.Cut(rawURL, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return rawURL
	}
	user, _, ok := strings.Cut(rest[:at], ":")
	if !ok {
		return rawURL
	}
	return scheme + "://" + user + ":" + mask + rest[at:]
}

// tiered shows a URL that has URLs in it. Of what it does not understand it shows
// nothing.
func tiered(rawURL string) string {
	before, query, _ := strings.Cut(rawURL, "?")
	if before != "tiered:" {
		return "tiered:" + mask
	}
	var shown []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(value)
		switch {
		case err == nil && (name == "hot" || name == "cold") && strings.Contains(plain, "://"):
			shown = append(shown, name+"="+url.QueryEscape(Shown(plain)))
		case name == "window":
			shown = append(shown, part)
		default:
			shown = append(shown, mask)
		}
	}
	return "tiered:?" + strings.Join(shown, "&")
}
