// Package wire is what goes over HTTP between a server and its clients: the
// bodies of requests and answers, and how they are read and written. Package
// server documents and serves them; package remotestore sends them.
//
// JSON is read strictly, as RFC 7493 (I-JSON) has it: UTF-8, names in the exact
// case, none given twice, none unknown, and nothing after the document. What is
// wrong is a *store.InputError that names the field.
package wire

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// Body is the field that an error names where it can name no other.
const Body = "body"

var (
	readOptions = json.JoinOptions(json.RejectUnknownMembers(true))

	// Raw strings are kept, so that a payload comes back byte for byte.
	writeOptions = json.JoinOptions(jsontext.PreserveRawStrings(true), json.Deterministic(true))

	// A client reads what a newer server says, too.
	clientOptions = json.JoinOptions(json.RejectUnknownMembers(false))
)

// Decode reads one JSON object strictly into v, a pointer to a struct of this
// package. The error is a *store.InputError.
func Decode(data []byte, v any) error {
	if kind := jsontext.Value(data).Kind(); kind != '{' && kind != jsontext.KindInvalid {
		return &store.InputError{Field: Body, Value: kindName(kind), Problem: "must be a JSON object"}
	}
	if err := json.Unmarshal(data, v, readOptions); err != nil {
		return explain(data, err, reflect.TypeOf(v))
	}
	return nil
}

// Encode writes v as JSON without a line end.
func Encode(v any) ([]byte, error) { return json.Marshal(v, writeOptions) }

// DecodeAnswer reads a server's answer: fields that are not known are passed
// over.
func DecodeAnswer(data []byte, v any) error { return json.Unmarshal(data, v, clientOptions) }

// explain turns an error of the JSON package into one for the person who wrote
// the request.
func explain(data []byte, err error, target reflect.Type) error {
	var input *store.InputError
	if errors.As(err, &input) {
		return input
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		field := fieldName(semantic.JSONPointer)
		if errors.Is(semantic.Err, json.ErrUnknownName) {
			name := string(semantic.JSONPointer.LastToken())
			return &store.InputError{Field: field, Problem: "is not a known field" + didYouMean(name, within(target, semantic.JSONPointer.Parent()))}
		}
		return explainType(field, valueAt(data, semantic.JSONPointer), semantic)
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		if errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
			return &store.InputError{Field: fieldName(syntax.JSONPointer), Problem: "is given twice"}
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return store.NewInputError(Body, "", "is empty, must be a JSON object")
		}
		if errors.Is(syntax.Err, io.ErrUnexpectedEOF) {
			return store.NewInputError(fieldName(syntax.JSONPointer), around(data, len(data)),
				"is no valid JSON: it ends in the middle, after %d bytes", len(data))
		}
		problem := strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
		if strings.Contains(problem, "after top-level value") {
			problem = "there is text after the JSON object"
		}
		if strings.Contains(problem, "UTF-8") || strings.Contains(problem, "surrogate") {
			problem = "the text is not UTF-8"
			if strings.Contains(syntax.Err.Error(), "surrogate") {
				problem = `half a surrogate pair (\ud800 to \udfff) is no character`
			}
			if slices.Contains(slices.Collect(syntax.JSONPointer.Tokens()), "payload") {
				problem += "; give bytes that are not Unicode text as payload_base64"
			}
			return &store.InputError{
				Field: fieldName(syntax.JSONPointer), Value: "(a string)",
				Problem: fmt.Sprintf("is no valid JSON at byte %d: %s", syntax.ByteOffset, problem),
			}
		}
		return store.NewInputError(fieldName(syntax.JSONPointer), around(data, int(syntax.ByteOffset)),
			"is no valid JSON at byte %d: %s", syntax.ByteOffset, problem)
	}
	return store.NewInputError(Body, "", "can not be read: %v", err)
}

var (
	durationType = reflect.TypeFor[Duration]()
	timeType     = reflect.TypeFor[Time]()
)

// valueAt is the number, string or word that a pointer leads to, or else the
// name of its kind.
func valueAt(data []byte, p jsontext.Pointer) string {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return "(no JSON)"
		}
		if d.StackPointer() != p {
			continue
		}
		// An object's name has the pointer of its value.
		if depth := d.StackDepth(); depth > 0 {
			if kind, n := d.StackIndex(depth); kind == '{' && n%2 == 1 && token.Kind() == '"' {
				continue
			}
		}
		if k := token.Kind(); k == '{' || k == '[' || k == '}' || k == ']' || k == '"' {
			return kindName(k)
		}
		if text := token.String(); len(text) <= 80 {
			return text
		}
		return kindName(token.Kind())
	}
}

func explainType(field, value string, e *json.SemanticError) error {
	t := e.GoType
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == durationType && e.JSONKind == '0':
		if _, err := timetext.Duration(field, value); err != nil {
			return err // it has no unit, and how to give one
		}
	case t == timeType && e.JSONKind == '0':
		if _, err := timetext.Time(field, value); err != nil {
			return err
		}
	case t == durationType:
		return &store.InputError{Field: field, Value: value, Problem: `must be a duration in a string, such as "30m" or "PT30M"`}
	case t == timeType:
		return &store.InputError{Field: field, Value: value, Problem: `must be a time in a string, such as "2030-01-31T07:00:00Z"`}
	}
	var corrupt base64.CorruptInputError
	if errors.As(e.Err, &corrupt) || t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && e.JSONKind == '"' {
		return &store.InputError{Field: field, Value: value, Problem: "is no valid base64 (the standard alphabet, with = at the end)"}
	}
	return &store.InputError{Field: field, Value: value, Problem: "must be " + typeName(t)}
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string of base64"
		}
		return "an array"
	}
	return "an object"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "(a string)"
	case '0':
		return "(a number)"
	case '{':
		return "(an object)"
	case '[':
		return "(an array)"
	case 't', 'f', 'n':
		return k.String()
	}
	return "(no JSON)"
}

// maxField bounds the name of a field in an error, as payloads may be nested
// thousands deep.
const maxField = 200

// fieldName writes /tasks/3/delay as tasks[3].delay.
func fieldName(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		if isIndex(token) && b.Len() > 0 {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if len(token) > 100 {
			token = strings.ToValidUTF8(token[:100], "") + "…"
		}
		b.WriteString(token)
	}
	if b.Len() == 0 {
		return Body
	}
	return b.String()
}

func isIndex(token string) bool {
	return token != "" && strings.Trim(token, "0123456789") == ""
}

// around shows the text that ends at an offset.
func around(data []byte, offset int) string {
	offset = min(max(offset, 0), len(data))
	end := min(offset+10, len(data))
	start := max(end-40, 0)
	return strings.ToValidUTF8(string(data[start:end]), "\uFFFD")
}

// within is the type of the value that a pointer leads to in one of type t.
func within(t reflect.Type, p jsontext.Pointer) reflect.Type {
	for token := range p.Tokens() {
		switch t = plain(t); t.Kind() {
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			i := 0
			for i < t.NumField() && jsonName(t.Field(i)) != token {
				i++
			}
			if i == t.NumField() {
				return nil
			}
			t = t.Field(i).Type
		default:
			return nil
		}
	}
	return plain(t)
}

// plain is what a type is in JSON: what a pointer leads to, what a patch sets.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p, ok := reflect.Zero(t).Interface().(interface{ Plain() reflect.Type }); ok {
		return plain(p.Plain())
	}
	return t
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// didYouMean names the field that was likely meant: the same in another case.
func didYouMean(name string, target reflect.Type) string {
	if target == nil || target.Kind() != reflect.Struct {
		return ""
	}
	var known []string
	for i := range target.NumField() {
		tag := jsonName(target.Field(i))
		if tag == "" || tag == "-" {
			continue
		}
		if strings.EqualFold(tag, name) {
			return fmt.Sprintf("; did you mean %q?", tag)
		}
		known = append(known, tag)
	}
	if len(known) == 0 {
		return "; there are none here"
	}
	return "; known are " + strings.Join(known, ", ")
}

// IsJSON says whether a payload can be shown as JSON and comes back as it is,
// but for white space.
func IsJSON(payload []byte) bool {
	return len(payload) > 0 && jsontext.Value(payload).IsValid()
}

// Compact takes the white space outside strings away. The result shares memory
// with the payload.
func Compact(payload jsontext.Value) jsontext.Value {
	if bytes.ContainsAny(payload, " \t\r\n") {
		_ = payload.Compact(jsontext.PreserveRawStrings(true)) // it was read as JSON before
	}
	return payload
}
