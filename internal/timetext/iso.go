package timetext

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// isoUnit is one letter of an ISO 8601 duration. Units must come in this order,
// each at most once; the T stands before the first that is part of a day.
type isoUnit struct {
	letter byte
	inTime bool
	length time.Duration // 0: has no fixed length
}

var isoUnits = []isoUnit{
	{'Y', false, 0},
	{'M', false, 0},
	{'W', false, 7 * 24 * time.Hour},
	{'D', false, 24 * time.Hour},
	{'H', true, time.Hour},
	{'M', true, time.Minute},
	{'S', true, time.Second},
}

// iso reads an ISO 8601 duration: exactly, and with any number of digits, so
// that one that is too long is told from one that is malformed. The problem is
// empty where the text is good.
func iso(text string) (d time.Duration, problem string) {
	malformed := func() (time.Duration, string) {
		return 0, "is not an ISO 8601 duration: write PT30M, PT1H30M, PT0.25S, P3D or P1W"
	}
	rest, negative := strings.CutPrefix(text, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	rest, ok := strings.CutPrefix(strings.ToUpper(rest), "P")
	if !ok || rest == "" {
		return malformed()
	}
	total := new(big.Rat)
	inTime, next := false, 0
	for rest != "" {
		if rest[0] == 'T' {
			if inTime || len(rest) == 1 {
				return malformed()
			}
			inTime = true
			rest = rest[1:]
		}
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789.,"))
		// ISO 8601 allows a comma before the decimals.
		number := strings.ReplaceAll(rest[:digits], ",", ".")
		if digits == 0 || digits == len(rest) || number[0] == '.' || strings.HasSuffix(number, ".") || digits > 100 {
			return malformed()
		}
		if strings.Contains(number, ".") && digits+1 != len(rest) {
			return 0, "has a decimal in a part that is not the last, which ISO 8601 does not allow"
		}
		letter := rest[digits]
		rest = rest[digits+1:]
		for next < len(isoUnits) && (isoUnits[next].letter != letter || isoUnits[next].inTime != inTime) {
			next++
		}
		if next == len(isoUnits) {
			return malformed()
		}
		unit := isoUnits[next]
		next++
		if unit.length == 0 {
			return 0, fmt.Sprintf("has %s, whose length is not fixed: write days (P30D) or a due time",
				map[byte]string{'Y': "years", 'M': "months"}[letter])
		}
		amount, ok := new(big.Rat).SetString(number)
		if !ok {
			return malformed()
		}
		total.Add(total, amount.Mul(amount, new(big.Rat).SetInt64(int64(unit.length))))
	}
	if negative {
		total.Neg(total)
	}
	// What is finer than a nanosecond is cut: the store rounds to a millisecond.
	ns := new(big.Int).Quo(total.Num(), total.Denom())
	if !ns.IsInt64() {
		return 0, fmt.Sprintf("is too long: the limit is %v, about 292 years; give a due time instead", time.Duration(math.MaxInt64))
	}
	return time.Duration(ns.Int64()), ""
}
