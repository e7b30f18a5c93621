package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// leaf is an entry of the log, strandline/commit@v2 (docs/spec/timeline.md, section 2).
type leaf struct {
	table, uuid, operation   string
	ref                      *string
	snapshot, parent         *int64
	sequence, content        int64
	committed, sequenced     int64
	schema, changesRoot      string // hex; empty: null
	contentRoot              string
	mapRoot, attested, state string
	changesCount             int64
}

const maxEntry = 1664

var (
	hexDigest  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	snapshotID = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,18})$`)
)

// The kind of each field: t(ext), i(nteger), c(ount, not negative), d(igest), s(napshot id); upper case: or null.
var leafFields = map[string]byte{
	"attested": 'T', "changes_count": 'C', "changes_root": 'D', "committed_ms": 'i', "content_count": 'c',
	"content_root": 'D', "format": 't', "manifest_list_sha256": 'D', "map_root": 'D', "metadata_sha256": 'D',
	"operation": 't', "parent_id": 'S', "ref": 'T', "rows_digest": 'D', "schema_sha256": 'D', "sequence": 'c',
	"sequenced_ms": 'c', "snapshot_id": 'S', "table": 't', "table_uuid": 't',
	"state_digest": 'D', "state_missing": 'T', "state_root": 'D',
}

// Which reference an operation may have: m(ain), b(ranch, also main), o(ther than main), a(ny, also null).
var operations = map[string]byte{
	"append": 'a', "replace": 'a', "overwrite": 'a', "delete": 'a',
	"create": 'm', "rename": 'm', "schema": 'm', "metadata": 'm', "erase": 'm', "drop": 'm',
	"rollback": 'b', "branch": 'b', "reset": 'm', "transaction": 'm', "tag": 'o', "unref": 'o', "vectors": 'm',
}

func (l leaf) onMain() bool { return l.ref != nil && *l.ref == "main" }

func (l leaf) addsSnapshot() bool { return operations[l.operation] == 'a' }

func (l leaf) movesRows() bool {
	switch l.operation {
	case "rollback", "branch", "reset", "transaction":
		return l.onMain()
	}
	return l.onMain() && l.addsSnapshot()
}

// following is how many leaves of its transaction follow.
func (l leaf) following() int64 {
	if l.operation == "transaction" {
		return l.content
	}
	return 0
}

func parseLeaf(entry []byte) (leaf, error) {
	if len(entry) > maxEntry {
		return leaf{}, errors.New("the entry is too long for a leaf")
	}
	record, err := parseCanonical(entry)
	if err != nil {
		return leaf{}, err
	}
	f := map[string]value{}
	for at, name := range record.names {
		if err := checkField(name, record.items[at]); err != nil {
			return leaf{}, err
		}
		f[name] = record.items[at]
	}
	for name := range leafFields {
		if _, ok := f[name]; !ok {
			return leaf{}, fmt.Errorf("the leaf has no %s", name)
		}
	}
	if f["format"].text != "strandline/commit@v2" {
		return leaf{}, fmt.Errorf("its format is %.40q", f["format"].text)
	}
	l := leaf{
		table: f["table"].text, uuid: f["table_uuid"].text, operation: f["operation"].text,
		schema: f["schema_sha256"].text, changesRoot: f["changes_root"].text, mapRoot: f["map_root"].text,
		attested: f["attested"].text, state: f["state_root"].text, contentRoot: f["content_root"].text,
	}
	if ref := f["ref"]; !ref.null() {
		l.ref = &ref.text
	}
	l.snapshot, l.parent = optionalID(f["snapshot_id"]), optionalID(f["parent_id"])
	l.sequence, _ = f["sequence"].integer()
	l.content, _ = f["content_count"].integer()
	l.committed, _ = f["committed_ms"].integer()
	l.sequenced, _ = f["sequenced_ms"].integer()
	if count := f["changes_count"]; !count.null() {
		l.changesCount, _ = count.integer()
	}
	nulls := 0
	for _, name := range []string{"attested", "changes_count", "changes_root"} {
		if f[name].null() {
			nulls++
		}
	}
	if nulls%3 != 0 || (nulls == 0 && l.attested != "lake" && l.attested != "writer") {
		return leaf{}, errors.New("attested, changes_count and changes_root do not agree")
	}
	if l.operation == "erase" && (f["content_root"].null() || l.content == 0) {
		return leaf{}, errors.New("an erasure has no record")
	}
	if err := checkState(l, f["state_digest"], f["state_missing"]); err != nil {
		return leaf{}, err
	}
	return l, l.check()
}

// checkState applies the rules on what a leaf states of main's rows.
func checkState(l leaf, digest, missing value) error {
	states := l.onMain() && l.operation != "drop" && l.operation != "vectors"
	if !states && !(digest.null() && missing.null() && l.state == "") {
		return errors.New("a leaf that is not about main's rows states them")
	}
	if l.state != "" && (digest.null() || !missing.null()) {
		return errors.New("a state_root has a state_digest, and nothing is missing")
	}
	switch missing.text {
	case "", "size", "unreadable", "duplicate-key", "off":
		return nil
	}
	return fmt.Errorf("no state is missing for %.40q", missing.text)
}

func checkField(name string, v value) error {
	kind := leafFields[name]
	if kind >= 'A' && kind <= 'Z' {
		if v.null() {
			return nil
		}
		kind += 'a' - 'A'
	}
	ok := false
	switch kind {
	case 't':
		ok = v.kind == '"' && v.text != ""
	case 'i', 'c':
		n, err := v.integer()
		ok = err == nil && (kind == 'i' || n >= 0)
	case 'd':
		ok = v.kind == '"' && hexDigest.MatchString(v.text)
	case 's':
		_, err := parseID(v)
		ok = err == nil
	}
	if !ok { // also for a field that leaves do not have
		return fmt.Errorf("the leaf's %.40q is not of its type", name)
	}
	return nil
}

func parseID(v value) (int64, error) {
	if v.kind != '"' || !snapshotID.MatchString(v.text) {
		return 0, errors.New("not a snapshot id")
	}
	return strconv.ParseInt(v.text, 10, 64)
}

func optionalID(v value) *int64 {
	id, err := parseID(v)
	if err != nil {
		return nil
	}
	return &id
}

func same(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// check applies the rules that a leaf meets by itself.
func (l leaf) check() error {
	kind, known := operations[l.operation]
	if !known {
		return fmt.Errorf("no operation is called %.40q", l.operation)
	}
	if l.ref != nil && *l.ref != "main" && isLikeMain(*l.ref) {
		return errors.New("the reference can be mistaken for main")
	}
	if (kind == 'm' && !l.onMain()) || (kind == 'o' && l.onMain()) || (kind != 'a' && l.ref == nil) {
		return fmt.Errorf("the operation %s is not of that reference", l.operation)
	}
	switch l.operation {
	case "create", "rename", "schema", "metadata", "erase":
		if !same(l.snapshot, l.parent) {
			return fmt.Errorf("%s moves main", l.operation)
		}
	case "drop":
		if l.snapshot != nil {
			return errors.New("a drop has a snapshot")
		}
	}
	if (l.addsSnapshot() || (l.movesRows() && l.operation != "reset")) && l.snapshot == nil {
		return fmt.Errorf("%s has no snapshot", l.operation)
	}
	return nil
}

// isLikeMain is the rule on references. What NFKC and case folding make of m, a, i and n is listed: no other character
// becomes one of them, so that the tables of Unicode are not needed.
func isLikeMain(ref string) bool {
	var folded strings.Builder
	for _, r := range ref {
		switch {
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp), isUnseen(r):
		case r < 0x80:
			folded.WriteRune(unicode.ToLower(r))
		default:
			if text, ok := foldsTo[r]; ok {
				folded.WriteString(text)
			} else {
				return false
			}
		}
	}
	return folded.String() == "main"
}

func isUnseen(r rune) bool {
	return r == 0x34F || r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0 ||
		(r >= 0xFE00 && r <= 0xFE0F) || (r >= 0xE0100 && r <= 0xE01EF)
}
