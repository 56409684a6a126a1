package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"path"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one operation on one shard.
type script struct {
	name string
	text string
	sha  string // by which a server knows it once it has seen it

	// promised: what it did is as durable as the store promises when the call
	// returns.
	promised bool
}

// scripts are all operations. Their files say what goes in and comes out.
type scripts struct {
	schedule, claim, settle, cancel, reschedule, get, list, peek *script
	stats, redrive, purge, settings, sweep, imports              *script
	fence, finish, take, land, drop                              *script // for Reshard
}

// serverTime is how scripts read the clock. Tests put one in its place that
// stands still.
const serverTime = `
local function time()
  local t = redis.call('TIME')
  return {tonumber(t[1]), tonumber(t[2])}
end
`

func readScript(name string) string {
	text, err := luaFiles.ReadFile(path.Join("lua", name+".lua"))
	if err != nil {
		panic(err) // embedded: a mistake in this program
	}
	return string(text)
}

func newScripts(clock string) *scripts {
	prelude := clock + readScript("prelude")
	load := func(name string) *script {
		text := prelude + readScript(name)
		sum := sha1.Sum([]byte(text))
		return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
	}
	all := &scripts{
		schedule: load("schedule"), claim: load("claim"), settle: load("settle"), cancel: load("cancel"),
		reschedule: load("reschedule"), get: load("get"), list: load("list"), peek: load("peek"),
		stats: load("stats"), redrive: load("redrive"), purge: load("purge"), settings: load("settings"),
		sweep: load("sweep"), imports: load("import"),
		fence: load("fence"), finish: load("finish"), take: load("take"), land: load("land"), drop: load("drop"),
	}
	for _, p := range []*script{all.schedule, all.cancel, all.reschedule, all.imports} {
		p.promised = true
	}
	return all
}
