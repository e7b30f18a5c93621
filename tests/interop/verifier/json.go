package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// value is a JSON value: its kind is the first character of its form, with '#' for numbers.
type value struct {
	kind  byte // n(ull) t(rue) f(alse) # " [ {
	text  string
	items []value
	names []string // of an object's items
}

const (
	exact    = 1 << 53
	maxDepth = 64
)

var integerLiteral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
var numberLiteral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)

// parseJSON reads one JSON value with one meaning: no key twice, no integer that some readers round, nothing unpaired.
func parseJSON(data []byte) (value, error) {
	if !utf8.Valid(data) {
		return value{}, errors.New("not UTF-8")
	}
	p := &parser{text: string(data)}
	v, err := p.value(1)
	if err != nil {
		return value{}, err
	}
	p.space()
	if p.text != "" {
		return value{}, errors.New("more than one JSON value")
	}
	return v, nil
}

type parser struct{ text string }

func (p *parser) space() { p.text = strings.TrimLeft(p.text, " \t\r\n") }

func (p *parser) take(token string) bool {
	if strings.HasPrefix(p.text, token) {
		p.text = p.text[len(token):]
		return true
	}
	return false
}

func (p *parser) value(depth int) (value, error) {
	p.space()
	switch {
	case p.take("null"):
		return value{kind: 'n'}, nil
	case p.take("true"):
		return value{kind: 't'}, nil
	case p.take("false"):
		return value{kind: 'f'}, nil
	case p.take(`"`):
		text, err := p.string()
		return value{kind: '"', text: text}, err
	case p.take("["):
		return p.list(depth)
	case p.take("{"):
		return p.object(depth)
	}
	literal := numberLiteral.FindString(p.text)
	if literal == "" {
		return value{}, fmt.Errorf("not JSON: %.20q", p.text)
	}
	p.text = p.text[len(literal):]
	if integerLiteral.MatchString(literal) {
		n, err := strconv.ParseInt(literal, 10, 64)
		if err != nil || n >= exact || n <= -exact {
			return value{}, fmt.Errorf("the number %.20s is not exact", literal)
		}
	} else if f, err := strconv.ParseFloat(literal, 64); err != nil || math.IsInf(f, 0) {
		return value{}, fmt.Errorf("the number %.20s is too large", literal)
	}
	return value{kind: '#', text: literal}, nil
}

func (p *parser) list(depth int) (value, error) {
	if depth > maxDepth {
		return value{}, errors.New("nested too deeply")
	}
	v := value{kind: '['}
	p.space()
	if p.take("]") {
		return v, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
		p.space()
		if p.take("]") {
			return v, nil
		}
		if !p.take(",") {
			return value{}, errors.New("a list is not ended")
		}
	}
}

func (p *parser) object(depth int) (value, error) {
	if depth > maxDepth {
		return value{}, errors.New("nested too deeply")
	}
	v, seen := value{kind: '{'}, map[string]bool{}
	p.space()
	if p.take("}") {
		return v, nil
	}
	for {
		p.space()
		if !p.take(`"`) {
			return value{}, errors.New("an object has no name")
		}
		name, err := p.string()
		if err != nil {
			return value{}, err
		}
		if seen[name] {
			return value{}, fmt.Errorf("the key %.40q is there twice", name)
		}
		seen[name] = true
		p.space()
		if !p.take(":") {
			return value{}, errors.New("a name has no value")
		}
		item, err := p.value(depth + 1)
		if err != nil {
			return value{}, err
		}
		v.names, v.items = append(v.names, name), append(v.items, item)
		p.space()
		if p.take("}") {
			return v, nil
		}
		if !p.take(",") {
			return value{}, errors.New("an object is not ended")
		}
	}
}

// string reads the rest of a string whose opening quote is taken.
func (p *parser) string() (string, error) {
	var out strings.Builder
	for {
		end := strings.IndexFunc(p.text, func(r rune) bool { return r == '"' || r == '\\' || r < 0x20 })
		if end < 0 || p.text[end] < 0x20 {
			return "", errors.New("a string is not ended, or has a control character")
		}
		out.WriteString(p.text[:end])
		quote := p.text[end] == '"'
		p.text = p.text[end+1:]
		if quote {
			return out.String(), nil
		}
		r, err := p.escape()
		if err != nil {
			return "", err
		}
		out.WriteRune(r)
	}
}

func (p *parser) escape() (rune, error) {
	if p.text == "" {
		return 0, errors.New("a string is not ended")
	}
	c := p.text[0]
	p.text = p.text[1:]
	if at := strings.IndexByte(`"\/bfnrt`, c); at >= 0 {
		return rune("\"\\/\b\f\n\r\t"[at]), nil
	}
	if c != 'u' {
		return 0, errors.New("an unknown escape")
	}
	r, err := p.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if p.take(`\u`) {
		low, err := p.hex()
		if err == nil && utf16.DecodeRune(r, low) != utf8.RuneError {
			return utf16.DecodeRune(r, low), nil
		}
	}
	return 0, errors.New("half of a pair of surrogates")
}

func (p *parser) hex() (rune, error) {
	if len(p.text) < 4 || strings.ContainsAny(p.text[:4], "+-_") {
		return 0, errors.New("an escape is not ended")
	}
	n, err := strconv.ParseUint(p.text[:4], 16, 16)
	p.text = p.text[4:]
	return rune(n), err
}

// canonical writes a value of text, null, integers, lists and objects under ASCII names, whose order it keeps, as
// RFC 8785 does. A value whose names do not ascend, or with anything else in it, has no such form.
func (v value) canonical() (string, error) {
	var out strings.Builder
	err := v.write(&out)
	return out.String(), err
}

func (v value) write(out *strings.Builder) error {
	switch v.kind {
	case 'n':
		out.WriteString("null")
	case '"':
		writeString(out, v.text)
	case '#':
		n, err := v.integer()
		if err != nil {
			return err
		}
		out.WriteString(strconv.FormatInt(n, 10))
	case '[':
		out.WriteByte('[')
		for at, item := range v.items {
			if at > 0 {
				out.WriteByte(',')
			}
			if err := item.write(out); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case '{':
		out.WriteByte('{')
		for at, item := range v.items {
			if at > 0 {
				if v.names[at-1] >= v.names[at] {
					return errors.New("names do not ascend")
				}
				out.WriteByte(',')
			}
			writeString(out, v.names[at])
			out.WriteByte(':')
			if err := item.write(out); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	default:
		return errors.New("a value that no canonical text has")
	}
	return nil
}

func writeString(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, r := range text {
		if at := strings.IndexRune("\"\\\b\f\n\r\t", r); at >= 0 {
			out.WriteByte('\\')
			out.WriteByte(`"\bfnrt`[at])
		} else if r < 0x20 {
			fmt.Fprintf(out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// parseCanonical reads a value and refuses every other spelling of it.
func parseCanonical(data []byte) (value, error) {
	v, err := parseJSON(data)
	if err != nil {
		return value{}, err
	}
	text, err := v.canonical()
	if err != nil {
		return value{}, err
	}
	if text != string(data) {
		return value{}, errors.New("not in its canonical form")
	}
	return v, nil
}

// fields returns an object's values by name; it must have exactly these.
func (v value) fields(names ...string) (map[string]value, error) {
	if v.kind != '{' || len(v.names) != len(names) {
		return nil, fmt.Errorf("not an object with the fields %v", names)
	}
	found := map[string]value{}
	for at, name := range v.names {
		found[name] = v.items[at]
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			return nil, fmt.Errorf("no field %s", name)
		}
	}
	return found, nil
}

func (v value) get(name string) (value, bool) {
	for at, other := range v.names {
		if other == name {
			return v.items[at], true
		}
	}
	return value{}, false
}

func (v value) integer() (int64, error) {
	if v.kind != '#' || !integerLiteral.MatchString(v.text) {
		return 0, fmt.Errorf("%.40q is not an integer", v.text)
	}
	return strconv.ParseInt(v.text, 10, 64)
}

func (v value) str() (string, error) {
	if v.kind != '"' {
		return "", errors.New("a value is not text")
	}
	return v.text, nil
}

func (v value) list() ([]value, error) {
	if v.kind != '[' {
		return nil, errors.New("a value is not a list")
	}
	return v.items, nil
}

func (v value) null() bool { return v.kind == 'n' }
