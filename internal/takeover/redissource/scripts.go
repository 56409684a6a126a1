package redissource

import (
	"embed"
	"fmt"

	"github.com/redis/rueidis"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the files of lua, which say what they take and give.
type scripts struct{ begin, take, stored, putBack, done, end *rueidis.Lua }

func loadScripts() (*scripts, error) {
	s := &scripts{}
	for _, f := range []struct {
		name string
		to   **rueidis.Lua
	}{{"begin", &s.begin}, {"take", &s.take}, {"stored", &s.stored}, {"putback", &s.putBack}, {"done", &s.done}, {"end", &s.end}} {
		text, err := luaFiles.ReadFile("lua/" + f.name + ".lua")
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", f.name, err)
		}
		*f.to = rueidis.NewLuaScript(string(text))
	}
	return s, nil
}
