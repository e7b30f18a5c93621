package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"sort"
	"strconv"
)

// dataType is an Iceberg type. For a struct: fields; a list: element; a map: key and element.
type dataType struct {
	name             string // of a primitive type without its parameters, or struct, list, map
	precision, scale int
	length           int
	fields           []field
	key, element     *dataType
}

type field struct {
	id   int64
	name string
	kind dataType
}

var (
	decimalType = regexp.MustCompile(`^decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)$`)
	fixedType   = regexp.MustCompile(`^fixed\[([0-9]{1,9})\]$`)
	decimalText = regexp.MustCompile(`^(-?)([0-9]{1,40})(?:\.([0-9]{1,40}))?(?:E([+-]?[0-9]{1,2}))?$`)
	integerText = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,18})$`)
)

// The tag of each primitive type in the row encoding (docs/row-digest.md).
var tags = map[string]byte{
	"unknown": 0x00, "boolean": 0x01, "int": 0x02, "long": 0x02, "float": 0x03, "double": 0x03, "decimal": 0x04,
	"date": 0x05, "time": 0x06, "timestamp": 0x07, "timestamptz": 0x08, "timestamp_ns": 0x09, "timestamptz_ns": 0x0A,
	"string": 0x0B, "binary": 0x0C, "fixed": 0x0C, "uuid": 0x0C, "list": 0x0D, "map": 0x0E, "struct": 0x0F,
}

func parseType(v value) (dataType, error) {
	if v.kind == '"' {
		if _, ok := tags[v.text]; ok && v.text != "list" && v.text != "map" && v.text != "struct" &&
			v.text != "decimal" && v.text != "fixed" {
			return dataType{name: v.text, length: map[string]int{"uuid": 16}[v.text]}, nil
		}
		if m := decimalType.FindStringSubmatch(v.text); m != nil {
			precision, _ := strconv.Atoi(m[1])
			scale, _ := strconv.Atoi(m[2])
			return dataType{name: "decimal", precision: precision, scale: scale}, nil
		}
		if m := fixedType.FindStringSubmatch(v.text); m != nil {
			length, _ := strconv.Atoi(m[1])
			return dataType{name: "fixed", length: length}, nil
		}
		return dataType{}, fmt.Errorf("no type is called %.40q", v.text)
	}
	kind, _ := v.get("type")
	inner := func(name string) (*dataType, error) {
		part, _ := v.get(name)
		t, err := parseType(part)
		return &t, err
	}
	var err error
	t := dataType{name: kind.text}
	switch kind.text {
	case "struct":
		t.fields, err = parseFields(v)
	case "list":
		t.element, err = inner("element")
	case "map":
		if t.key, err = inner("key"); err == nil {
			t.element, err = inner("value")
		}
	default:
		err = errors.New("a type is neither primitive nor struct, list or map")
	}
	return t, err
}

// parseFields reads the fields of a struct or schema, by ascending id.
func parseFields(v value) ([]field, error) {
	list, _ := v.get("fields")
	items, err := list.list()
	if err != nil {
		return nil, err
	}
	var fields []field
	names, ids := map[string]bool{}, map[int64]bool{}
	for _, item := range items {
		id, _ := item.get("id")
		name, _ := item.get("name")
		kind, _ := item.get("type")
		f := field{name: name.text}
		if f.id, err = id.integer(); err != nil || name.kind != '"' || f.id < 1 || f.id >= 1<<31 {
			return nil, errors.New("a field has no id or no name")
		}
		if f.kind, err = parseType(kind); err != nil {
			return nil, err
		}
		if names[f.name] || ids[f.id] {
			return nil, errors.New("two fields have one name or id")
		}
		names[f.name], ids[f.id] = true, true
		fields = append(fields, f)
	}
	sort.Slice(fields, func(a, b int) bool { return fields[a].id < fields[b].id })
	return fields, nil
}

// cell is a value that is not NULL, encoded.
type cell struct {
	tag     byte
	slot    uint64
	payload []byte
}

func (c *cell) bytes() []byte {
	if c == nil {
		return make([]byte, 9)
	}
	out := append([]byte{c.tag}, binary.BigEndian.AppendUint64(nil, c.slot)...)
	return append(out, c.payload...)
}

// encodeStruct returns how many fields are not NULL, and their directory and payloads.
func encodeStruct(fields []field, v value) (uint64, []byte, error) {
	if v.kind != '{' || len(v.names) != len(fields) {
		return 0, nil, errors.New("a row or struct has other fields than its type")
	}
	var directory, payloads []byte
	count := uint64(0)
	for _, f := range fields {
		item, ok := v.get(f.name)
		if !ok {
			return 0, nil, fmt.Errorf("no field %.40q", f.name)
		}
		c, err := encodeValue(f.kind, item)
		if err != nil {
			return 0, nil, err
		}
		if c == nil {
			continue
		}
		count++
		directory = binary.BigEndian.AppendUint32(directory, uint32(f.id))
		directory = append(directory, c.tag)
		directory = binary.BigEndian.AppendUint64(directory, c.slot)
		payloads = append(payloads, c.payload...)
	}
	return count, append(directory, payloads...), nil
}

// rowDigest is the digest of the row cut down to the fields.
func rowDigest(all, fields []field, row value) (hash, error) {
	if len(fields) != len(all) {
		part := value{kind: '{'}
		for _, f := range fields {
			item, ok := row.get(f.name)
			if !ok {
				return hash{}, fmt.Errorf("no field %.40q", f.name)
			}
			part.names, part.items = append(part.names, f.name), append(part.items, item)
		}
		row = part
	}
	count, rest, err := encodeStruct(fields, row)
	if err != nil {
		return hash{}, err
	}
	out := append([]byte{0, 0, 0, 0, tags["struct"]}, binary.BigEndian.AppendUint64(nil, count)...)
	return sha256.Sum256(append(out, rest...)), nil
}

func encodeValue(t dataType, v value) (*cell, error) {
	if v.null() {
		return nil, nil
	}
	c := &cell{tag: tags[t.name]}
	var err error
	switch t.name {
	case "unknown":
		return nil, errors.New("a column of unknown type has a value")
	case "boolean":
		if v.kind != 't' && v.kind != 'f' {
			return nil, errors.New("not a boolean")
		}
		if v.kind == 't' {
			c.slot = 1
		}
	case "int", "date", "long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns":
		var n int64
		n, err = integerOf(v)
		if (t.name == "int" || t.name == "date") && int64(int32(n)) != n {
			return nil, errors.New("an integer has more than 32 bits")
		}
		c.slot = uint64(n)
	case "float", "double":
		c.slot, err = floatBits(t.name, v)
	case "decimal":
		var unscaled *big.Int
		if unscaled, err = unscaledOf(t, v); err == nil {
			c.payload = []byte(unscaled.String())
			c.slot = uint64(t.scale)<<32 | uint64(len(c.payload))
		}
	case "string":
		var text string
		text, err = v.str()
		c.payload, c.slot = []byte(text), uint64(len(text))
	case "binary", "fixed", "uuid":
		c.payload, err = bytesOf(t, v)
		c.slot = uint64(len(c.payload))
	case "struct":
		c.slot, c.payload, err = encodeStruct(t.fields, v)
	case "list", "map":
		err = encodeItems(c, t, v)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func encodeItems(c *cell, t dataType, v value) error {
	items, err := v.list()
	if err != nil {
		return err
	}
	var parts [][]byte
	for _, item := range items {
		var part []byte
		if t.name == "map" {
			pair, err := item.list()
			if err != nil || len(pair) != 2 || pair[0].null() {
				return errors.New("an entry of a map is not a key and a value")
			}
			key, err := encodeValue(*t.key, pair[0])
			if err != nil {
				return err
			}
			part, item = key.bytes(), pair[1]
		}
		inner, err := encodeValue(*t.element, item)
		if err != nil {
			return err
		}
		parts = append(parts, append(part, inner.bytes()...))
	}
	if t.name == "map" {
		sort.Slice(parts, func(a, b int) bool { return bytes.Compare(parts[a], parts[b]) < 0 })
	}
	c.slot, c.payload = uint64(len(parts)), bytes.Join(parts, nil)
	return nil
}

// integerOf reads a number, or the text of one that may have 64 bits.
func integerOf(v value) (int64, error) {
	if v.kind == '"' && integerText.MatchString(v.text) {
		return strconv.ParseInt(v.text, 10, 64)
	}
	return v.integer()
}

func floatBits(name string, v value) (uint64, error) {
	var f float64
	var err error
	switch {
	case v.kind == '"' && (v.text == "nan" || v.text == "inf" || v.text == "-inf"):
		f, err = strconv.ParseFloat(v.text, 64)
	case v.kind == '#' && integerLiteral.MatchString(v.text):
		var n int64
		n, err = v.integer()
		f = float64(n) // not -0: an integer has no sign there
	case v.kind == '#':
		f, err = strconv.ParseFloat(v.text, 64)
	default:
		err = errors.New("not a number")
	}
	if name == "float" {
		f = float64(float32(f))
	}
	if math.IsNaN(f) {
		return 0x7FF8000000000000, err
	}
	return math.Float64bits(f), err
}

func unscaledOf(t dataType, v value) (*big.Int, error) {
	m := decimalText.FindStringSubmatch(v.text)
	if v.kind != '"' || m == nil {
		return nil, errors.New("not a decimal")
	}
	exponent, _ := strconv.Atoi(m[4])
	shift := exponent - len(m[3]) + t.scale
	unscaled, _ := new(big.Int).SetString(m[2]+m[3], 10)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	if shift >= 0 {
		unscaled.Mul(unscaled, power)
	} else if _, rest := unscaled.QuoRem(unscaled, power, new(big.Int)); rest.Sign() != 0 {
		return nil, errors.New("a decimal has more digits than its scale")
	}
	if unscaled.Cmp(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.precision)), nil)) >= 0 {
		return nil, errors.New("a decimal has more digits than its precision")
	}
	if m[1] == "-" {
		unscaled.Neg(unscaled)
	}
	return unscaled, nil
}

func bytesOf(t dataType, v value) ([]byte, error) {
	text, err := v.str()
	if err != nil {
		return nil, err
	}
	data, err := decode64(text)
	if err == nil && t.name != "binary" && len(data) != t.length {
		err = errors.New("bytes of another length than their type")
	}
	return data, err
}

// compare orders two values of a key column: NULL first, numbers by size, text and bytes by their bytes.
func compare(t dataType, a, b value) (int, error) {
	if a.null() || b.null() {
		return map[bool]int{true: 1}[b.null() && !a.null()] - map[bool]int{true: 1}[a.null() && !b.null()], nil
	}
	switch t.name {
	case "float", "double", "list", "map", "struct":
		return 0, errors.New("a key is neither nested nor floating")
	case "boolean":
		return int(a.kind) - int(b.kind), nil // 'f' is before 't'
	case "string":
		return bytes.Compare([]byte(a.text), []byte(b.text)), nil
	case "binary", "fixed", "uuid":
		x, err := bytesOf(t, a)
		y, err2 := bytesOf(t, b)
		return bytes.Compare(x, y), errors.Join(err, err2)
	case "decimal":
		x, err := unscaledOf(t, a)
		y, err2 := unscaledOf(t, b)
		if err := errors.Join(err, err2); err != nil {
			return 0, err
		}
		return x.Cmp(y), nil
	}
	x, err := integerOf(a)
	y, err2 := integerOf(b)
	order := 0
	if x < y {
		order = -1
	} else if x > y {
		order = 1
	}
	return order, errors.Join(err, err2)
}
