package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sort"
)

// rowProof is a file of strandline/rows@v1 (docs/spec/timeline.md, section 6), with what it leaves out still missing.
type rowProof struct {
	leaf        record
	entry       record
	mapPath     []hash
	description value
	rows        place
	next        *record
	nextPath    []hash
}

func parseRowProof(extra []byte) (rowProof, error) {
	format := []byte("strandline/rows@v1\n")
	if !bytes.HasPrefix(extra, format) {
		return rowProof{}, errors.New("not the proof of a row")
	}
	r := &reader{rest: extra[len(format):]}
	p := rowProof{
		leaf: r.leaf(false), entry: r.entry(), mapPath: r.path(), description: r.description(), rows: r.place(0),
	}
	if r.err == nil && len(r.rest) > 0 {
		next := r.leaf(true)
		p.next, p.nextPath = &next, r.path()
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errors.New("it goes on after its end")
	}
	return p, r.err
}

// verifyRows checks a row proof for these keys, and no others. It says which of them have a row.
func verifyRows(data []byte, q question, keys []value) ([]bool, error) {
	file, err := parseProof(data)
	if err != nil {
		return nil, err
	}
	proof, err := parseRowProof(file.extra)
	if err != nil {
		return nil, err
	}
	signed, err := openCheckpoint(file.checkpoint, q.keys, q.origin)
	if err != nil {
		return nil, err
	}
	if q.checkpoint != nil && *q.checkpoint != signed {
		return nil, errors.New("the checkpoint is not the expected one")
	}
	stateRoot, found, err := stateOf(proof, keys)
	if err != nil {
		return nil, err
	}
	leaf, err := leafOf(proof, file.index, stateRoot, q)
	if err != nil {
		return nil, err
	}
	return found, checkPoint(proof, file, leaf, signed, q)
}

// stateOf is the state root that the keys' paths lead to, and which keys have a row (rules 2 and 3).
func stateOf(proof rowProof, keys []value) (hash, []bool, error) {
	description, err := proof.description.canonical()
	if err != nil {
		return hash{}, nil, err
	}
	fields, err := keyOf([]byte(description))
	if err != nil {
		return hash{}, nil, err
	}
	digests, distinct := []hash{}, map[hash]bool{}
	for _, key := range keys {
		digest, err := rowDigest(fields, fields, key)
		if err != nil {
			return hash{}, nil, err
		}
		digests, distinct[digest] = append(digests, digest), true
	}
	sorted := []hash{}
	for digest := range distinct {
		sorted = append(sorted, digest)
	}
	sort.Slice(sorted, func(a, b int) bool { return bytes.Compare(sorted[a][:], sorted[b][:]) < 0 })
	if len(sorted) == 0 {
		return hash{}, nil, errors.New("no key was asked for")
	}
	rows := map[hash]bool{}
	root, err := proof.rows.hash(sorted, 0, rows)
	if err != nil {
		return hash{}, nil, err
	}
	found := []bool{}
	for _, digest := range digests {
		found = append(found, rows[digest])
	}
	described := sha256.Sum256([]byte(description))
	return sha256.Sum256(append(append([]byte{4}, described[:]...), root[:]...)), found, nil
}

// leafOf is the entry of the leaf at the point, with all that the file leaves out (rules 4 and 5).
func leafOf(proof rowProof, index int64, stateRoot hash, q question) ([]byte, error) {
	state := value{kind: '"', text: hex.EncodeToString(stateRoot[:])}
	proof.entry["state_root"] = state
	text, err := proof.entry.canonical()
	if err != nil {
		return nil, err
	}
	e, err := parseEntry([]byte(text))
	if err != nil {
		return nil, err
	}
	if q.uuid != nil && *q.uuid != e.uuid {
		return nil, errors.New("it is of another table")
	}
	if e.mainIndex == nil || *e.mainIndex > e.index || e.index > index {
		return nil, errors.New("the map states a later leaf")
	}
	if len(proof.mapPath) > 256 {
		return nil, errors.New("a path in the map has at most 256 hashes")
	}
	name := sha256.Sum256([]byte("strandline/table\n" + q.table))
	root := climb(name, mapLeaf(name, sha256.Sum256([]byte(text))), proof.mapPath, 0)
	proof.leaf["map_root"] = value{kind: '"', text: hex.EncodeToString(root[:])}
	_, given := proof.leaf["table"]
	if !given {
		proof.leaf["table"] = value{kind: '"', text: q.table}
		proof.leaf["table_uuid"] = value{kind: '"', text: e.uuid}
		if !proof.leaf["state_root"].null() {
			proof.leaf["state_root"] = state
		}
	} else if own := proof.leaf["state_root"]; proof.leaf["table"].text == q.table && proof.leaf["table_uuid"].text == e.uuid &&
		(own.null() || own.text == state.text) {
		return nil, errors.New("the leaf repeats what can be left out")
	}
	entry, err := proof.leaf.canonical()
	return []byte(entry), err
}

// checkPoint checks that the leaf is in the log at the point that was asked for (rules 6 to 8).
func checkPoint(proof rowProof, file proofFile, entry []byte, signed checkpoint, q question) error {
	if err := verifyBatch([]shown{{file.index, leafHash(entry)}}, signed.size, file.hashes, signed.root); err != nil {
		return err
	}
	l, err := parseLeaf(entry)
	if err != nil {
		return err
	}
	isLast := file.index+1 == signed.size
	if (proof.next != nil) != (q.timeMS != nil && !isLast) {
		return errors.New("the next leaf is shown, or is not")
	}
	switch {
	case q.index != nil && *q.index != file.index:
		return errors.New("it is for another index")
	case q.index == nil && q.timeMS == nil && (q.checkpoint == nil || !isLast):
		return errors.New("it is not for the newest index")
	case q.timeMS == nil:
		return nil
	case l.sequenced > *q.timeMS || (isLast && q.checkpoint == nil):
		return errors.New("nothing shows that it is for that time")
	case isLast:
		return nil
	}
	text, err := proof.next.canonical()
	if err != nil {
		return err
	}
	at, depth := leafHash(entry), 0
	for ; file.index>>depth&1 == 1 && depth < len(file.hashes); depth++ {
		at = node(file.hashes[depth], at)
	}
	path := append(append([]hash{}, proof.nextPath...), at)
	if depth < len(file.hashes) {
		path = append(path, file.hashes[depth+1:]...)
	}
	if err := verifyBatch([]shown{{file.index + 1, leafHash([]byte(text))}}, signed.size, path, signed.root); err != nil {
		return err
	}
	after, err := parseLeaf([]byte(text))
	if err == nil && after.sequenced <= *q.timeMS {
		err = errors.New("a later leaf was sequenced by that time")
	}
	return err
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
