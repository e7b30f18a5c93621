package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// erasure is a record strandline/erasure@v1 (docs/spec/erasure.md).
type erasure struct {
	uuid    string
	root    string // hex, over its lines
	count   int64
	objects []replaced
	changes []erasedChange
	rows    []erasedRow
}

type replaced struct {
	path    string
	newPath *string // nil: no object is in its place
}

type erasedChange struct{ sequence, position int64 }

type erasedRow struct {
	digest      string
	first, last int64
}

var erasureID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// parseErasure reads a record: a header, then lines of objects, changes and rows, each kind sorted by its values.
func parseErasure(data []byte) (erasure, error) {
	var e erasure
	text := string(data)
	if !strings.HasSuffix(text, "\n") {
		return e, errors.New("the last line is not ended")
	}
	var hashes []hash
	before, beforeKind := "", 0
	for at, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		v, err := parseCanonical([]byte(line))
		if err != nil {
			return e, err
		}
		hashes = append(hashes, leafHash([]byte(line)))
		if at == 0 {
			err = e.header(v)
		} else {
			kind, order := 0, ""
			if kind, order, err = e.line(v); err == nil && (kind < beforeKind || kind == beforeKind && order < before) {
				err = errors.New("lines are not sorted")
			}
			before, beforeKind = order, kind
		}
		if err != nil {
			return e, err
		}
	}
	root := treeRoot(hashes)
	e.root, e.count = hex.EncodeToString(root[:]), int64(len(hashes))
	return e, e.distinct()
}

func (e *erasure) header(v value) error {
	f, err := v.fields("format", "id", "reason", "table_uuid")
	if err != nil {
		return err
	}
	for _, field := range f {
		if field.kind != '"' {
			return errors.New("a field of the header is not text")
		}
	}
	if f["format"].text != "strandline/erasure@v1" || !erasureID.MatchString(f["id"].text) {
		return errors.New("not the header of an erasure")
	}
	e.uuid = f["table_uuid"].text
	return nil
}

// line adds a line, and returns its kind and what it is sorted by.
func (e *erasure) line(v value) (int, string, error) {
	if v.kind != '[' || len(v.items) == 0 || v.items[0].kind != '"' {
		return 0, "", errors.New("a line is not a list that says what it is")
	}
	values := v.items[1:]
	switch kind := v.items[0].text; {
	case kind == "object" && len(values) == 6:
		if err := checkObject(values[:3]); err != nil {
			return 0, "", err
		}
		object := replaced{path: values[0].text}
		if !(values[3].null() && values[4].null() && values[5].null()) {
			if err := checkObject(values[3:]); err != nil {
				return 0, "", err
			}
			object.newPath = &values[3].text
		}
		e.objects = append(e.objects, object)
		return 1, object.path, nil
	case kind == "change" && len(values) == 3 && isDigest(values[2]):
		sequence, position, err := counts(values[0], values[1])
		e.changes = append(e.changes, erasedChange{sequence, position})
		return 2, fmt.Sprintf("%020d %020d", sequence, position), err
	case kind == "row" && len(values) == 3 && isDigest(values[0]):
		first, last, err := counts(values[1], values[2])
		e.rows = append(e.rows, erasedRow{values[0].text, first, last})
		return 3, fmt.Sprintf("%s %020d %020d", values[0].text, first, last), err
	}
	return 0, "", errors.New("a line is none of an object, a change and a row")
}

func checkObject(values []value) error {
	length, err := values[1].integer()
	if values[0].kind != '"' || err != nil || length < 0 || !isDigest(values[2]) {
		return errors.New("an object has not a path, a length and a SHA-256")
	}
	return nil
}

func isDigest(v value) bool { return v.kind == '"' && hexDigest.MatchString(v.text) }

func counts(a, b value) (int64, int64, error) {
	first, err := a.integer()
	if err != nil {
		return 0, 0, err
	}
	second, err := b.integer()
	if err == nil && (first < 0 || second < 0) {
		err = errors.New("a number is negative")
	}
	return first, second, err
}

func (e *erasure) distinct() error {
	paths, put, places := map[string]bool{}, map[string]bool{}, map[erasedChange]bool{}
	for _, object := range e.objects {
		if paths[object.path] || object.newPath != nil && put[*object.newPath] {
			return errors.New("an object is listed twice")
		}
		paths[object.path] = true
		if object.newPath != nil {
			put[*object.newPath] = true
		}
	}
	for _, change := range e.changes {
		if places[change] {
			return errors.New("a change is listed twice")
		}
		places[change] = true
	}
	return nil
}

// verifyErasures checks that each erase leaf of a table, whose leaves are all given, has a record that counts (section 2),
// and returns how many rows and changes were erased in all.
func verifyErasures(entries, records [][]byte) (rows, changes int, err error) {
	byRoot := map[string]erasure{}
	for _, data := range records {
		if e, err := parseErasure(data); err == nil { // one that is no record covers nothing
			byRoot[fmt.Sprintf("%s %d", e.root, e.count)] = e
		}
	}
	covered, gone, put, erased := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[erasedChange]bool{}
	for _, entry := range entries {
		l, err := parseLeaf(entry)
		if err != nil {
			return 0, 0, err
		}
		key := fmt.Sprintf("%s %d", l.contentRoot, l.content)
		if l.operation != "erase" || covered[key] {
			continue
		}
		covered[key] = true
		e, ok := byRoot[key]
		if !ok {
			return 0, 0, errors.New("an erase leaf has no record, or another one")
		}
		if err := e.fits(l, gone, put, erased); err != nil {
			return 0, 0, err
		}
		for _, object := range e.objects {
			gone[object.path] = true
			if object.newPath != nil {
				put[*object.newPath] = true
			}
		}
		for _, change := range e.changes {
			erased[change] = true
		}
		rows, changes = rows+countRows(e.rows), changes+len(e.changes)
	}
	return rows, changes, nil
}

func (e erasure) fits(l leaf, gone, put map[string]bool, erased map[erasedChange]bool) error {
	if e.uuid != l.uuid {
		return errors.New("the record is of another table")
	}
	for _, change := range e.changes {
		if change.sequence >= l.sequence || erased[change] {
			return errors.New("a change was committed after the erasure, or erased before it")
		}
	}
	for _, row := range e.rows {
		if row.first > row.last || row.last >= l.sequence {
			return errors.New("a row was committed after the erasure")
		}
	}
	paths := map[string]bool{}
	for _, object := range e.objects {
		paths[object.path] = true
		if gone[object.path] {
			return errors.New("an object was replaced before")
		}
	}
	for _, object := range e.objects {
		if at := object.newPath; at != nil && (paths[*at] || gone[*at] || put[*at]) {
			return errors.New("an object is put where another one was")
		}
	}
	return nil
}

// countRows: lines of one digest are of one row, unless the leaves that they name overlap.
func countRows(rows []erasedRow) int {
	type move struct {
		digest string
		at     int64
		step   int
	}
	var moves []move
	for _, row := range rows {
		moves = append(moves, move{row.digest, row.first, 1}, move{row.digest, row.last + 1, -1})
	}
	sort.Slice(moves, func(i, j int) bool {
		a, b := moves[i], moves[j]
		if a.digest != b.digest {
			return a.digest < b.digest
		}
		if a.at != b.at {
			return a.at < b.at
		}
		return a.step < b.step
	})
	most, now := map[string]int{}, map[string]int{}
	total := 0
	for _, m := range moves {
		now[m.digest] += m.step
		if now[m.digest] > most[m.digest] {
			most[m.digest]++
			total++
		}
	}
	return total
}
