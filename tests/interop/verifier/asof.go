package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// question is what the caller asked for: never taken from the file.
type question struct {
	keys       []verifierKey
	origin     string
	table      string
	index      *int64
	timeMS     *int64
	uuid       *string
	checkpoint *checkpoint // the newest one that the caller knows
}

// entry is what the map of tables has of a table.
type entry struct {
	uuid            string
	sequence, index int64
	mainIndex       *int64
	snapshot        *string // decimal text
	state           string  // hex; empty: null
}

const maxBetween = 256

// verifyAsOf checks a file of strandline/as-of@v1 (docs/spec/timeline.md, section 5).
func verifyAsOf(data []byte, q question) error {
	if len(data) > 1<<20 {
		return errors.New("the file is too long")
	}
	record, err := parseCanonical(data)
	if err != nil {
		return err
	}
	f, err := record.fields("checkpoint", "format", "hashes", "index", "leaves", "map", "snapshot_id", "stated_at",
		"table", "table_uuid", "time_ms")
	if err != nil {
		return err
	}
	if f["format"].text != "strandline/as-of@v1" || f["checkpoint"].kind != '"' || f["table"].kind != '"' {
		return errors.New("not an as-of file")
	}
	cut, err := f["index"].integer()
	if err != nil {
		return err
	}
	timeMS, err := optionalInteger(f["time_ms"])
	if err != nil {
		return err
	}
	if f["table"].text != q.table || !same(timeMS, q.timeMS) || (q.index != nil && *q.index != cut) {
		return errors.New("the file answers another question")
	}
	signed, err := openCheckpoint([]byte(f["checkpoint"].text), q.keys, q.origin)
	if err != nil {
		return err
	}
	if q.checkpoint != nil && *q.checkpoint != signed {
		return errors.New("the file is against another checkpoint")
	}
	leaves, err := shownLeaves(f["leaves"], f["hashes"], signed)
	if err != nil {
		return err
	}
	if err := checkCut(cut, timeMS, leaves, signed.size, q.checkpoint != nil); err != nil {
		return err
	}
	found, err := entryAt(q.table, cut, f["map"], leaves)
	if err != nil {
		return err
	}
	if err := checkClaims(f, found, leaves, cut, q.table); err != nil {
		return err
	}
	if q.uuid != nil && (found == nil || found.uuid != *q.uuid) {
		return errors.New("the name was that of another table")
	}
	return nil
}

func optionalInteger(v value) (*int64, error) {
	if v.null() {
		return nil, nil
	}
	n, err := v.integer()
	return &n, err
}

func shownLeaves(list, hashes value, signed checkpoint) (map[int64]leaf, error) {
	items, err := list.list()
	if err != nil {
		return nil, err
	}
	proof, err := decodeHashes(hashes)
	if err != nil {
		return nil, err
	}
	leaves, proven := map[int64]leaf{}, []shown{}
	for _, item := range items {
		pair, err := item.list()
		if err != nil || len(pair) != 2 || pair[1].kind != '"' {
			return nil, errors.New("a leaf is not an index and an entry")
		}
		index, err := pair[0].integer()
		if err != nil {
			return nil, err
		}
		data := []byte(pair[1].text)
		if leaves[index], err = parseLeaf(data); err != nil {
			return nil, err
		}
		proven = append(proven, shown{index, leafHash(data)})
	}
	return leaves, verifyBatch(proven, signed.size, proof, signed.root)
}

func checkCut(cut int64, timeMS *int64, leaves map[int64]leaf, size int64, newest bool) error {
	if cut < -1 || cut >= size || (timeMS == nil && cut < 0) {
		return errors.New("the cut is not in the tree")
	}
	if timeMS == nil {
		return nil
	}
	before, shown := leaves[cut]
	if cut >= 0 && (!shown || before.sequenced > *timeMS) {
		return errors.New("nothing shows that the cut was sequenced by then")
	}
	after, shown := leaves[cut+1]
	if cut+1 == size {
		if !newest {
			return errors.New("later leaves may be hidden")
		}
	} else if !shown || after.sequenced <= *timeMS {
		return errors.New("nothing shows that the cut was the last one by then")
	}
	return nil
}

// entryAt is the name's entry at the cut: from the map, and from the leaves after it.
func entryAt(table string, cut int64, v value, leaves map[int64]leaf) (*entry, error) {
	f, err := v.fields("index", "other", "siblings", "value")
	if err != nil {
		return nil, err
	}
	at, err := f["index"].integer()
	if err != nil {
		return nil, err
	}
	var root hash
	if at != -1 {
		stating, shown := leaves[at]
		if !shown || at > cut || stating.mapRoot == "" {
			return nil, errors.New("no leaf states the map")
		}
		raw, _ := hex.DecodeString(stating.mapRoot)
		root = hash(raw)
	}
	found, err := entryInMap(table, f, root)
	if err != nil {
		return nil, err
	}
	if cut-at > maxBetween {
		return nil, errors.New("the map is too far from the cut")
	}
	for index := at + 1; index <= cut; index++ {
		l, shown := leaves[index]
		if !shown || l.mapRoot != "" {
			return nil, errors.New("a leaf after the map is missing, or states a later map")
		}
		if found, err = applied(table, found, index, l, cut); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func entryInMap(table string, f map[string]value, root hash) (*entry, error) {
	siblings, err := decodeHashes(f["siblings"])
	if err != nil {
		return nil, err
	}
	var another *other
	if !f["other"].null() {
		pair, err := decodeHashes(f["other"])
		if err != nil || len(pair) != 2 {
			return nil, errors.New("the other key is not a pair of hashes")
		}
		another = &other{pair[0], pair[1]}
	}
	key := sha256.Sum256([]byte("strandline/table\n" + table))
	if f["value"].null() {
		return nil, verifyMap(key, nil, siblings, another, root)
	}
	text, err := f["value"].str()
	if err != nil {
		return nil, err
	}
	if err := verifyMap(key, []byte(text), siblings, another, root); err != nil {
		return nil, err
	}
	return parseEntry([]byte(text))
}

func parseEntry(data []byte) (*entry, error) {
	record, err := parseCanonical(data)
	if err != nil {
		return nil, err
	}
	f, err := record.fields("index", "main_index", "sequence", "snapshot_id", "state_root", "table_uuid")
	if err != nil {
		return nil, err
	}
	state, e := f["state_root"], &entry{}
	if !state.null() && (state.kind != '"' || !hexDigest.MatchString(state.text)) {
		return nil, errors.New("the state_root is not a hash")
	}
	e.state = state.text
	if e.uuid, err = f["table_uuid"].str(); err != nil {
		return nil, err
	}
	if e.index, err = f["index"].integer(); err != nil {
		return nil, err
	}
	if e.sequence, err = f["sequence"].integer(); err != nil {
		return nil, err
	}
	if e.mainIndex, err = optionalInteger(f["main_index"]); err != nil {
		return nil, err
	}
	if snapshot := f["snapshot_id"]; !snapshot.null() {
		if _, err := parseID(snapshot); err != nil {
			return nil, err
		}
		e.snapshot = &snapshot.text
	}
	return e, nil
}

// applied is the entry after one more leaf. The leaves of a transaction take effect at the last of them.
func applied(table string, e *entry, index int64, l leaf, cut int64) (*entry, error) {
	if index+l.following() > cut {
		return e, nil
	}
	known := e != nil && e.uuid == l.uuid
	if known && l.sequence != e.sequence+1 {
		return nil, fmt.Errorf("leaf %d does not follow", index)
	}
	if l.table != table {
		if known {
			return nil, nil // renamed
		}
		return e, nil
	}
	if e != nil && !known {
		return nil, fmt.Errorf("leaf %d is of a second table of the name", index)
	}
	if l.operation == "drop" {
		return nil, nil
	}
	after := &entry{uuid: l.uuid, sequence: l.sequence, index: index}
	if l.onMain() {
		after.mainIndex, after.snapshot, after.state = &index, idText(l.snapshot), l.state
	} else if e != nil {
		after.mainIndex, after.snapshot, after.state = e.mainIndex, e.snapshot, e.state
	}
	return after, nil
}

func idText(id *int64) *string {
	if id == nil {
		return nil
	}
	text := fmt.Sprint(*id)
	return &text
}

func sameText(v value, text *string) bool {
	if text == nil {
		return v.null()
	}
	return v.kind == '"' && v.text == *text
}

// checkClaims compares what the file says with the entry, and the entry with the table's own leaves.
func checkClaims(f map[string]value, e *entry, leaves map[int64]leaf, cut int64, table string) error {
	statedAt, err := optionalInteger(f["stated_at"])
	if err != nil {
		return err
	}
	if e == nil {
		if !f["table_uuid"].null() || !f["snapshot_id"].null() || statedAt != nil {
			return errors.New("there was no such table")
		}
		return nil
	}
	if !sameText(f["table_uuid"], &e.uuid) || !sameText(f["snapshot_id"], e.snapshot) || !same(statedAt, e.mainIndex) {
		return errors.New("the claim is not what the map states")
	}
	if e.mainIndex == nil || *e.mainIndex > e.index || e.index > cut {
		return errors.New("the map states a leaf that comes after it")
	}
	last, shownLast := leaves[e.index]
	stated, shownStated := leaves[*e.mainIndex]
	if !shownLast || !shownStated {
		return errors.New("a leaf of the table is not shown")
	}
	for _, l := range []leaf{last, stated} {
		if l.table != table || l.uuid != e.uuid || l.operation == "drop" {
			return errors.New("the leaves are not of the table, or say that it was dropped")
		}
	}
	if last.sequence != e.sequence || stated.state != e.state || stated.sequence > last.sequence || *e.mainIndex+stated.following() > cut {
		return errors.New("the leaves are not those that the map states")
	}
	snapshot := idText(stated.snapshot)
	if !stated.onMain() || (snapshot == nil) != (e.snapshot == nil) || (snapshot != nil && *snapshot != *e.snapshot) {
		return errors.New("the leaf states another snapshot")
	}
	return nil
}
