package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sort"
)

// packedNames are the names that stand as one byte each, from 02 on (docs/spec/timeline.md, section 6).
var packedNames = []string{
	"attested", "changes_count", "changes_root", "committed_ms", "content_count", "content_root", "format", "index",
	"main_index", "manifest_list_sha256", "map_root", "metadata_sha256", "operation", "parent_id", "ref", "rows_digest",
	"schema_sha256", "sequence", "sequenced_ms", "snapshot_id", "state_digest", "state_missing", "state_root", "table",
	"table_uuid",
}

var packable = func() *regexp.Regexp {
	names := ""
	for _, name := range packedNames {
		names += "|" + name
	}
	return regexp.MustCompile(`"[0-9a-f]{64}"|"(?:` + names[1:] + `)":|` +
		`"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"|null`)
}()

func pack(text []byte) []byte {
	return packable.ReplaceAllFunc(text, func(found []byte) []byte {
		switch {
		case found[0] == 'n':
			return []byte{0x1c}
		case found[len(found)-1] == ':':
			for at, name := range packedNames {
				if string(found[1:len(found)-2]) == name {
					return []byte{byte(2 + at)}
				}
			}
		}
		code := byte(0x01)
		if len(found) != 66 {
			code = 0x1b
		}
		raw, _ := hex.DecodeString(string(bytes.ReplaceAll(found[1:len(found)-1], []byte("-"), nil)))
		return append([]byte{code}, raw...)
	})
}

func unpack(data []byte) ([]byte, error) {
	var out []byte
	for at := 0; at < len(data); at++ {
		code := data[at]
		width := map[byte]int{0x01: 32, 0x1b: 16}[code]
		if at+width >= len(data) && width > 0 {
			return nil, errors.New("a packed text ends in the middle of a hash")
		}
		digits := hex.EncodeToString(data[at+1 : at+1+width])
		switch {
		case code >= 0x20:
			out = append(out, code)
		case code == 0x01:
			out = append(out, `"`+digits+`"`...)
		case code == 0x1b:
			uuid := digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
			out = append(out, `"`+uuid+`"`...)
		case code == 0x1c:
			out = append(out, "null"...)
		case code >= 2 && int(code) < 2+len(packedNames):
			out = append(out, `"`+packedNames[code-2]+`":`...)
		default:
			return nil, fmt.Errorf("a packed text has the code %d", code)
		}
		at += width
		if len(out) > 0xFFFF {
			return nil, errors.New("a packed text is too long")
		}
	}
	if !bytes.Equal(pack(out), data) {
		return nil, errors.New("a text is packed in another way")
	}
	return out, nil
}

// verifyRow checks a row proof, strandline/row@v1 (section 6). It says whether there is a row.
func verifyRow(data []byte, q question, key value) (bool, error) {
	proof, err := parseProof(data)
	if err != nil {
		return false, err
	}
	format := []byte("strandline/row@v1\n")
	if !bytes.HasPrefix(proof.extra, format) {
		return false, errors.New("not the proof of a row")
	}
	parts, rest := [][]byte{}, proof.extra[len(format):]
	for len(rest) > 0 {
		if len(rest) < 2 || len(rest) < 2+int(binary.BigEndian.Uint16(rest)) {
			return false, errors.New("a part is cut off")
		}
		end := 2 + int(binary.BigEndian.Uint16(rest))
		parts, rest = append(parts, rest[2:end]), rest[end:]
	}
	if len(parts) != 9 {
		return false, errors.New("it has not nine parts")
	}
	signed, err := openCheckpoint(proof.checkpoint, q.keys, q.origin)
	if err != nil {
		return false, err
	}
	if q.checkpoint != nil && *q.checkpoint != signed {
		return false, errors.New("the checkpoint is not the expected one")
	}
	l, err := leafAtPoint(parts, proof, signed, q)
	if err != nil {
		return false, err
	}
	stateRoot, err := stateRootOf(parts, proof.index, l, q)
	if err != nil {
		return false, err
	}
	return rowInState(parts, stateRoot, key)
}

// leafAtPoint is the leaf that ends a batch at the point that was asked for (rules 1 to 3).
func leafAtPoint(parts [][]byte, proof proofFile, signed checkpoint, q question) (leaf, error) {
	entry, err := unpack(parts[0])
	if err != nil {
		return leaf{}, err
	}
	if err := verifyBatch([]shown{{proof.index, leafHash(entry)}}, signed.size, proof.hashes, signed.root); err != nil {
		return leaf{}, err
	}
	l, err := parseLeaf(entry)
	if err != nil {
		return leaf{}, err
	}
	isLast := proof.index+1 == signed.size
	if l.mapRoot == "" {
		return leaf{}, errors.New("the leaf does not end a batch")
	}
	if (len(parts[7]) > 0) != (q.timeMS != nil && !isLast) || (len(parts[7]) == 0 && len(parts[8]) > 0) {
		return leaf{}, errors.New("the next leaf is shown, or is not")
	}
	switch {
	case q.index != nil && *q.index != proof.index:
		return leaf{}, errors.New("it is for another index")
	case q.index == nil && q.timeMS == nil && (q.checkpoint == nil || !isLast):
		return leaf{}, errors.New("it is not for the newest index")
	case q.timeMS == nil:
		return l, nil
	case l.sequenced > *q.timeMS || (isLast && q.checkpoint == nil):
		return leaf{}, errors.New("nothing shows that it is for that time")
	case isLast:
		return l, nil
	}
	next, err := unpack(parts[7])
	if err != nil {
		return leaf{}, err
	}
	path, err := splitHashes(parts[8])
	if err != nil {
		return leaf{}, err
	}
	if err := verifyBatch([]shown{{proof.index + 1, leafHash(next)}}, signed.size, path, signed.root); err != nil {
		return leaf{}, err
	}
	after, err := parseLeaf(next)
	if err == nil && after.sequenced <= *q.timeMS {
		err = errors.New("a later leaf was sequenced by that time")
	}
	return l, err
}

// stateRootOf is the table's state root in the map of tables (rule 4).
func stateRootOf(parts [][]byte, index int64, l leaf, q question) (hash, error) {
	text, err := unpack(parts[1])
	if err != nil {
		return hash{}, err
	}
	siblings, err := splitHashes(parts[2])
	if err != nil {
		return hash{}, err
	}
	var root, stateRoot hash
	hex.Decode(root[:], []byte(l.mapRoot))
	name := sha256.Sum256([]byte("strandline/table\n" + q.table))
	if err := verifyMap(name, text, siblings, nil, root); err != nil {
		return hash{}, err
	}
	e, err := parseEntry(text)
	if err != nil {
		return hash{}, err
	}
	if q.uuid != nil && *q.uuid != e.uuid {
		return hash{}, errors.New("it is of another table")
	}
	if e.mainIndex == nil || *e.mainIndex > e.index || e.index > index || e.state == "" {
		return hash{}, errors.New("the map has no state of the table, or one of a later leaf")
	}
	hex.Decode(stateRoot[:], []byte(e.state))
	return stateRoot, nil
}

// rowInState checks the key's path in the state map, and the row (rules 5 to 7).
func rowInState(parts [][]byte, stateRoot hash, key value) (bool, error) {
	fields, err := keyOf(parts[3])
	if err != nil {
		return false, err
	}
	at, err := rowDigest(fields, fields, key)
	if err != nil {
		return false, err
	}
	siblings, err := splitHashes(parts[5])
	if err != nil {
		return false, err
	}
	var salted []byte
	var another *other
	switch kind := parts[4]; {
	case len(kind) == 65 && kind[0] == 'P':
		salted = kind[1:]
	case len(kind) == 65 && kind[0] == 'A':
		another = &other{hash(kind[1:33]), hash(kind[33:])}
	case len(kind) != 1 || kind[0] != 'A':
		return false, errors.New("it says neither that there is a row nor that there is none")
	}
	root, err := mapRootOf(at, salted, siblings, another)
	if err != nil {
		return false, err
	}
	description := sha256.Sum256(parts[3])
	if sha256.Sum256(append(append([]byte{4}, description[:]...), root[:]...)) != stateRoot {
		return false, errors.New("the path leads to another state root")
	}
	if len(parts[6]) > 0 && (salted == nil || sha256.Sum256(parts[6]) != hash(salted[32:])) {
		return false, errors.New("the row is not that of the key")
	}
	return salted != nil, nil
}

// mapRootOf is the root that a path leads to.
func mapRootOf(key hash, salted []byte, siblings []hash, another *other) (hash, error) {
	var at hash
	if salted != nil {
		at = mapLeaf(key, sha256.Sum256(salted))
	} else if another != nil {
		at = mapLeaf(another.key, another.value)
	}
	if len(siblings) > 256 {
		return at, errors.New("a path in the map has at most 256 hashes")
	}
	for depth := len(siblings) - 1; depth >= 0; depth-- {
		left, right := at, siblings[depth]
		if bit(key, depth) == 1 {
			left, right = right, left
		}
		at = sha256.Sum256(append(append([]byte{3}, left[:]...), right[:]...))
	}
	return at, verifyMap(key, salted, siblings, another, at)
}

// keyOf reads the key's columns from the description of a state map.
func keyOf(description []byte) ([]field, error) {
	record, err := parseCanonical(description)
	if err != nil {
		return nil, err
	}
	f, err := record.fields("columns", "format", "key")
	if err != nil {
		return nil, err
	}
	if f["format"].text != "strandline/state@v1" {
		return nil, errors.New("another format of the state map")
	}
	columns, err := pairs(f["columns"])
	if err != nil {
		return nil, err
	}
	names, seen := map[int64]string{}, map[string]bool{}
	for _, column := range columns {
		if seen[column.name] {
			return nil, errors.New("two columns have one name")
		}
		names[column.id], seen[column.name] = column.name, true
	}
	key, err := pairs(f["key"])
	if err != nil || len(key) == 0 {
		return nil, errors.New("the description has no key")
	}
	for at := range key {
		name, ok := names[key[at].id]
		if !ok {
			return nil, errors.New("a column of the key is not among the columns")
		}
		kind, err := parseType(value{kind: '"', text: key[at].name})
		if err != nil || kind.name == "float" || kind.name == "double" || kind.name == "unknown" {
			return nil, errors.New("a column of the key has a type that no key has")
		}
		key[at].name, key[at].kind = name, kind
	}
	return key, nil
}

func pairs(list value) ([]field, error) {
	items, err := list.list()
	if err != nil {
		return nil, err
	}
	var fields []field
	for _, item := range items {
		pair, err := item.list()
		if err != nil || len(pair) != 2 || pair[1].kind != '"' {
			return nil, errors.New("a column is not an id and a text")
		}
		id, err := pair[0].integer()
		if err != nil || id < 1 || id >= 1<<31 {
			return nil, errors.New("a column has no id")
		}
		fields = append(fields, field{id: id, name: pair[1].text})
	}
	ascend := sort.SliceIsSorted(fields, func(a, b int) bool { return fields[a].id < fields[b].id })
	for at := 1; at < len(fields); at++ {
		ascend = ascend && fields[at-1].id < fields[at].id
	}
	if !ascend {
		return nil, errors.New("ids do not ascend")
	}
	return fields, nil
}

func splitHashes(data []byte) ([]hash, error) {
	if len(data)%32 != 0 {
		return nil, errors.New("a path is not a list of hashes")
	}
	var hashes []hash
	for at := 0; at < len(data); at += 32 {
		hashes = append(hashes, hash(data[at:at+32]))
	}
	return hashes, nil
}
