package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// expected is what the caller of verifyFeed knows: the table, where the feed begins and what it must reach.
type expected struct {
	keys         []verifierKey
	origin       string
	table        string
	uuid         string
	since, until int64
	kept         *checkpoint
	writer       bool // believe a changes_root that only the writer computed
}

// feedState is the table after the last verified leaf.
type feedState struct {
	expected
	name           string
	reached, index int64
	main           *int64
	mainKnown      bool
	dropped        bool
	last           *checkpoint
}

// verifyFeed checks a feed in JSON lines (docs/spec/feed.md), complete change sets only.
func verifyFeed(data []byte, want expected) (int64, error) {
	s := &feedState{expected: want, reached: want.since, index: -1, mainKnown: want.since < 0, last: want.kept}
	if s.last != nil && s.origin == "" {
		s.origin = s.last.origin
	}
	lines := bytes.Split(data, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	for len(lines) > 0 {
		head, err := parseJSON(lines[0])
		if err != nil {
			return 0, err
		}
		changes, end := []value{}, 1
		for ; end < len(lines); end++ {
			line, err := parseJSON(lines[end])
			if err != nil {
				return 0, err
			}
			if _, ok := line.get("format"); ok {
				break
			}
			changes = append(changes, line)
		}
		if err := s.add(head, changes); err != nil {
			return 0, err
		}
		lines = lines[end:]
	}
	if s.name != "" && s.table != "" && s.name != s.table {
		return 0, errors.New("the feed ends with another table's name")
	}
	if s.reached < s.until {
		return 0, errors.New("the feed ends before it should")
	}
	return s.reached, nil
}

func (s *feedState) add(head value, lines []value) error {
	f, err := head.fields("format", "commit", "key", "root", "count", "schema_json", "evidence", "part", "schema")
	if err != nil {
		return err
	}
	if f["format"].text != "strandline/changes@v2" || f["schema"].kind != '"' {
		return errors.New("not a change set")
	}
	if !f["part"].null() {
		return errors.New("only a part of the changes")
	}
	evidence, err := f["evidence"].fields("leaf", "proof", "passed", "consistency")
	if err != nil {
		return err
	}
	passed, err := evidence["passed"].list()
	if err != nil {
		return err
	}
	own := value{kind: '[', items: []value{evidence["leaf"], evidence["proof"]}}
	var signed *checkpoint
	var entries []leaf
	var indexes []int64
	for _, pair := range append(append([]value{}, passed...), own) {
		l, index, at, err := s.open(pair)
		if err != nil {
			return err
		}
		if signed != nil && *signed != at {
			return errors.New("the leaves are not all against one checkpoint")
		}
		signed, entries, indexes = &at, append(entries, l), append(indexes, index)
	}
	if err := s.checkTree(*signed, evidence["consistency"]); err != nil {
		return err
	}
	for at, l := range entries {
		if err := s.follow(l, indexes[at], at == len(passed)); err != nil {
			return err
		}
	}
	l, index := entries[len(passed)], indexes[len(passed)]
	if err := checkHeader(f, l, index); err != nil {
		return err
	}
	if l.changesRoot == "" || (l.attested != "lake" && !s.writer) {
		return errors.New("the changes_root is not that of the lake")
	}
	if err := checkChanges(f, l, lines); err != nil {
		return err
	}
	s.last, s.origin = signed, signed.origin
	return nil
}

// open verifies one leaf and its proof.
func (s *feedState) open(pair value) (leaf, int64, checkpoint, error) {
	items, err := pair.list()
	if err != nil || len(items) != 2 || items[0].kind != '"' || items[1].kind != '"' {
		return leaf{}, 0, checkpoint{}, errors.New("the evidence is not a leaf and a proof")
	}
	entry := []byte(items[0].text)
	index, signed, err := verifyProof([]byte(items[1].text), entry, s.keys, s.origin)
	if err != nil {
		return leaf{}, 0, checkpoint{}, err
	}
	l, err := parseLeaf(entry)
	return l, index, signed, err
}

// checkTree verifies that the tree extends the one before.
func (s *feedState) checkTree(signed checkpoint, consistency value) error {
	size, hashes := int64(-1), []hash(nil)
	if !consistency.null() {
		pair, err := consistency.list()
		if err != nil || len(pair) != 2 {
			return errors.New("the consistency proof is not a size and hashes")
		}
		if size, err = pair[0].integer(); err != nil || size < 0 {
			return errors.New("the size is not a number")
		}
		list, err := pair[1].list()
		if err != nil {
			return err
		}
		for _, item := range list {
			raw, err := hex.DecodeString(item.text)
			if err != nil || item.kind != '"' || len(raw) != 32 || strings.ToLower(item.text) != item.text {
				return errors.New("not a hash in hex")
			}
			hashes = append(hashes, hash(raw))
		}
	}
	if s.last == nil || *s.last == signed || (s.last.size == 0 && s.last.origin == signed.origin) {
		return nil
	}
	if signed.origin != s.last.origin || size != s.last.size {
		return errors.New("nothing shows that the tree extends the one before")
	}
	return verifyConsistency(size, signed.size, hashes, s.last.root, signed.root)
}

// follow verifies that the leaf is the table's next, and goes on from where main was.
func (s *feedState) follow(l leaf, index int64, hasChanges bool) error {
	if s.uuid != "" && l.uuid != s.uuid {
		return errors.New("a leaf of another table")
	}
	if l.sequence != s.reached+1 || index <= s.index {
		return fmt.Errorf("leaf %d follows leaf %d", l.sequence, s.reached)
	}
	if l.movesRows() != hasChanges {
		return errors.New("a commit without its changes, or changes without a commit")
	}
	if s.name != "" && l.table != s.name && l.operation != "rename" {
		return errors.New("another name without a rename")
	}
	if s.dropped && l.operation != "rename" {
		return errors.New("a leaf follows the drop of its table")
	}
	if (l.sequence == 0) != (l.operation == "create") {
		return errors.New("the first leaf of a table, and no other, is create")
	}
	if l.onMain() {
		if s.mainKnown && !same(l.parent, s.main) {
			return errors.New("the leaf does not go on from where main was")
		}
		stated := l.parent
		if l.operation == "drop" {
			stated = nil
		}
		if !l.movesRows() && !same(l.snapshot, stated) {
			return errors.New("the leaf moves main without changes")
		}
		s.dropped = l.operation == "drop"
		s.main, s.mainKnown = l.snapshot, true
		if s.dropped {
			s.main = l.parent
		}
	}
	s.reached, s.index, s.name, s.uuid = l.sequence, index, l.table, l.uuid
	return nil
}

func checkHeader(f map[string]value, l leaf, index int64) error {
	c, err := f["commit"].fields("table", "table_uuid", "snapshot_id", "parent_id", "committed_ms", "index", "sequence")
	if err != nil {
		return err
	}
	if !sameText(c["table"], &l.table) || !sameText(c["table_uuid"], &l.uuid) ||
		!sameText(c["snapshot_id"], idText(l.snapshot)) || !sameText(c["parent_id"], idText(l.parent)) {
		return errors.New("the header is not that of the leaf")
	}
	for name, stated := range map[string]int64{"committed_ms": l.committed, "index": index, "sequence": l.sequence} {
		if n, err := c[name].integer(); err != nil || n != stated {
			return fmt.Errorf("the header's %s is not that of the leaf", name)
		}
	}
	if l.snapshot == nil || !sameText(f["root"], &l.changesRoot) {
		return errors.New("the root is not that of the leaf")
	}
	if n, err := f["count"].integer(); err != nil || n != l.changesCount {
		return errors.New("the count is not that of the leaf")
	}
	return nil
}

// change is one record, with the row that has its key.
type change struct {
	op            byte
	key           hash
	before, after hash
	row           value
}

// checkChanges computes the root over the changes under the committed schema.
func checkChanges(f map[string]value, l leaf, lines []value) error {
	text, err := f["schema_json"].str()
	if err != nil {
		return errors.New("the feed has no schema")
	}
	digest := sha256.Sum256([]byte(text))
	if hex.EncodeToString(digest[:]) != l.schema {
		return errors.New("the schema is not the committed one")
	}
	schema, err := parseJSON([]byte(text))
	if err != nil {
		return err
	}
	columns, err := parseFields(schema)
	if err != nil {
		return err
	}
	key, err := keyFields(f["key"], schema, columns)
	if err != nil {
		return err
	}
	var leaves []hash
	var previous *change
	for _, line := range lines {
		c, err := parseChange(line, columns, key)
		if err != nil {
			return err
		}
		if previous != nil {
			if err := inOrder(*previous, c, key); err != nil {
				return err
			}
		}
		record := append([]byte{c.op}, c.key[:]...)
		leaves = append(leaves, leafHash(append(append(record, c.before[:]...), c.after[:]...)))
		previous = &c
	}
	root := treeRoot(leaves)
	if hex.EncodeToString(root[:]) != l.changesRoot || int64(len(leaves)) != l.changesCount {
		return errors.New("the changes have another root")
	}
	return nil
}

// keyFields are the key's columns: the schema's identifier fields or, if it has none, those that the feed names.
func keyFields(v, schema value, columns []field) ([]field, error) {
	names, err := v.list()
	if err != nil {
		return nil, err
	}
	var key []field
	for _, name := range names {
		before := len(key)
		for _, column := range columns {
			if name.kind == '"' && column.name == name.text {
				key = append(key, column)
			}
		}
		if len(key) == before || (before > 0 && key[before-1].id >= key[before].id) {
			return nil, errors.New("the key is not columns by ascending id")
		}
		switch key[before].kind.name {
		case "float", "double", "list", "map", "struct":
			return nil, errors.New("a key is neither nested nor floating")
		}
	}
	ids, ok := schema.get("identifier-field-ids")
	if !ok || ids.null() || (ids.kind == '[' && len(ids.items) == 0) {
		return key, nil
	}
	stated := map[int64]bool{}
	for _, item := range ids.items {
		id, err := item.integer()
		if err != nil {
			return nil, err
		}
		stated[id] = true
	}
	if len(stated) != len(key) {
		return nil, errors.New("the key is not the schema's")
	}
	for _, column := range key {
		if !stated[column.id] {
			return nil, errors.New("the key is not the schema's")
		}
	}
	return key, nil
}

func parseChange(line value, columns, key []field) (change, error) {
	f, err := line.fields("op", "before", "after")
	if err != nil {
		return change{}, err
	}
	op, err := f["op"].str()
	if err != nil || (op != "INSERT" && op != "UPDATE" && op != "DELETE") {
		return change{}, errors.New("no such op")
	}
	if f["before"].null() != (op == "INSERT") || f["after"].null() != (op == "DELETE") {
		return change{}, errors.New("a row that the op does not allow, or lacks")
	}
	c := change{op: op[0], row: f["after"]}
	if op == "DELETE" {
		c.row = f["before"]
	}
	for name, digest := range map[string]*hash{"before": &c.before, "after": &c.after} {
		if !f[name].null() {
			if *digest, err = rowDigest(columns, columns, f[name]); err != nil {
				return change{}, err
			}
		}
	}
	if len(key) == 0 {
		c.key = c.after
		if op == "DELETE" {
			c.key = c.before
		}
		if op == "UPDATE" {
			return change{}, errors.New("an UPDATE in a table without a key")
		}
		return c, nil
	}
	if c.key, err = rowDigest(columns, key, c.row); err != nil {
		return change{}, err
	}
	if op == "UPDATE" {
		old, err := rowDigest(columns, key, f["before"])
		if err != nil {
			return change{}, err
		}
		if old != c.key || c.before == c.after {
			return change{}, errors.New("an UPDATE of two keys, or of nothing")
		}
	}
	return c, nil
}

// inOrder checks that b does not belong before a.
func inOrder(a, b change, key []field) error {
	order := 0
	for _, column := range key {
		x, _ := a.row.get(column.name)
		y, _ := b.row.get(column.name)
		var err error
		if order, err = compare(column.kind, x, y); err != nil {
			return err
		}
		if order != 0 {
			break
		}
	}
	if len(key) == 0 {
		order = less(a.key, b.key)
	}
	for _, next := range []int{int(a.op) - int(b.op), less(a.before, b.before), less(a.after, b.after)} {
		if order == 0 {
			order = next
		}
	}
	if order > 0 {
		return errors.New("the changes are not in order")
	}
	return nil
}
