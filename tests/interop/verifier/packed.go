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
	"strconv"
	"unicode/utf8"
)

var uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// reader takes the parts of a row proof one after the other; after an error it gives nothing any more.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(text string) {
	if r.err == nil {
		r.err = errors.New(text)
	}
	r.rest = nil
}

func (r *reader) take(size uint64) []byte {
	if size > uint64(len(r.rest)) {
		r.fail("it ends too soon")
		return nil
	}
	taken := r.rest[:size]
	r.rest = r.rest[size:]
	return taken
}

// number is unsigned LEB128 in its shortest spelling.
func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || !bytes.Equal(binary.AppendUvarint(nil, n), r.rest[:size]) {
		r.fail("a number is not in its shortest form")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() []byte { return r.take(r.number()) }

func (r *reader) hash() hash {
	var h hash
	copy(h[:], r.take(32))
	return h
}

// path is how many hashes, a bit for each (0: the empty hash), and the hashes that are not empty.
func (r *reader) path() []hash {
	count := r.number()
	if count > 256 {
		r.fail("a path has more than 256 hashes")
		return nil
	}
	bitmap, hashes := r.take((count+7)/8), []hash{}
	for at := uint64(0); at < count && r.err == nil; at++ {
		var h hash
		if bitmap[at/8]>>(7-at%8)&1 == 1 {
			if h = r.hash(); h == (hash{}) {
				r.fail("an empty hash is spelt out")
			}
		}
		hashes = append(hashes, h)
	}
	if r.err == nil && count%8 != 0 && bitmap[count/8]<<(count%8) != 0 {
		r.fail("a path has bits for no hash")
	}
	return hashes
}

// record is a flat JSON object.
type record map[string]value

func (f record) canonical() (string, error) {
	v := value{kind: '{'}
	for name := range f {
		v.names = append(v.names, name)
	}
	sort.Strings(v.names)
	for _, name := range v.names {
		v.items = append(v.items, f[name])
	}
	return v.canonical()
}

// packedFields are a leaf's fields in their order, without `format`; the first has bit 23.
var packedFields = []string{
	"attested", "changes_count", "changes_root", "committed_ms", "content_count", "content_root", "manifest_list_sha256",
	"map_root", "metadata_sha256", "operation", "parent_id", "ref", "rows_digest", "schema_sha256", "sequence",
	"sequenced_ms", "snapshot_id", "state_digest", "state_missing", "state_root", "table", "table_uuid",
}

// leaf reads a leaf. Its map_root is left out, unless it is the one after the point; of the table in question also its
// name and uuid, and the state_root, if it has one: that stands as an empty text.
func (r *reader) leaf(afterPoint bool) record {
	bits := uint32(0)
	for _, octet := range r.take(3) {
		bits = bits<<8 | uint32(octet)
	}
	ofTable := bits>>1&1 == 1
	if bits&1 == 1 || (ofTable && afterPoint) {
		r.fail("a leaf has an unknown bit")
	}
	f := record{"format": value{kind: '"', text: "strandline/commit@v2"}}
	for at, name := range packedFields {
		given := bits>>(23-at)&1 == 1
		switch {
		case ofTable && (name == "table" || name == "table_uuid"), name == "map_root" && !afterPoint:
			if given {
				r.fail("a leaf gives what it leaves out")
			}
		case ofTable && name == "state_root" && given:
			f[name] = value{kind: '"'}
		case given:
			f[name] = r.field(name)
		default:
			f[name] = value{kind: 'n'}
		}
	}
	return f
}

func (r *reader) field(name string) value {
	switch leafFields[name] | 0x20 {
	case 'c':
		return integerValue(int64(r.exact()))
	case 'i':
		n := r.number()
		signed := int64(n >> 1)
		if n&1 == 1 {
			signed = ^signed
		}
		return integerValue(signed)
	case 'd':
		h := r.hash()
		return value{kind: '"', text: hex.EncodeToString(h[:])}
	case 's':
		return r.id()
	}
	if name == "table_uuid" {
		return r.uuid()
	}
	return r.string()
}

// exact is a number that a JSON number can be.
func (r *reader) exact() uint64 {
	n := r.number()
	if n >= 1<<53 {
		r.fail("a number is not exact")
	}
	return n
}

func integerValue(n int64) value { return value{kind: '#', text: strconv.FormatInt(n, 10)} }

func (r *reader) id() value {
	raw := r.take(8)
	if raw == nil {
		return value{}
	}
	return value{kind: '"', text: strconv.FormatInt(int64(binary.BigEndian.Uint64(raw)), 10)}
}

func (r *reader) string() value {
	text := r.text()
	if len(text) == 0 || !utf8.Valid(text) {
		r.fail("a text is empty, or not UTF-8")
	}
	return value{kind: '"', text: string(text)}
}

// uuid is a text; an empty one stands for 16 bytes, and has to if it can.
func (r *reader) uuid() value {
	if len(r.rest) > 0 && r.rest[0] == 0 {
		r.take(1)
		digits := hex.EncodeToString(r.take(16))
		if r.err != nil {
			return value{}
		}
		text := digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
		return value{kind: '"', text: text}
	}
	text := r.string()
	if uuidText.MatchString(text.text) {
		r.fail("a uuid is spelt out")
	}
	return text
}

// entry reads a table's entry in the map of tables, without its state_root.
func (r *reader) entry() record {
	f := record{
		"index": integerValue(int64(r.exact())), "main_index": integerValue(int64(r.exact())),
		"sequence": integerValue(int64(r.exact())), "snapshot_id": value{kind: 'n'},
	}
	if kind := r.take(1); kind != nil && kind[0] == 1 {
		f["snapshot_id"] = r.id()
	} else if kind == nil || kind[0] != 0 {
		r.fail("an entry neither has a snapshot nor has none")
	}
	f["table_uuid"] = r.uuid()
	return f
}

// description reads that of a state map, as JSON.
func (r *reader) description() value {
	lists := []value{}
	for range 2 {
		list := value{kind: '['}
		for count := r.number(); count > 0 && r.err == nil; count-- {
			id, text := r.exact(), r.text()
			if !utf8.Valid(text) {
				r.fail("a name is not UTF-8")
			}
			pair := []value{integerValue(int64(id)), {kind: '"', text: string(text)}}
			list.items = append(list.items, value{kind: '[', items: pair})
		}
		lists = append(lists, list)
	}
	format := value{kind: '"', text: "strandline/state@v1"}
	return value{kind: '{', names: []string{"columns", "format", "key"}, items: []value{lists[0], format, lists[1]}}
}

// place is where some keys lead in the state map: down beside siblings, to an end.
type place struct {
	siblings    []hash
	end         byte // 0 nothing, 1 the leaf of another key, 2 and 3 a row, 4 a fork
	position    uint64
	key, value  hash // of the leaf: its key (of another), its commitment
	left, right *place
}

func (r *reader) place(depth int) place {
	p := place{siblings: r.path()}
	depth += len(p.siblings)
	if depth > 256 {
		r.fail("a path has more than 256 hashes")
	}
	end := r.take(1)
	if end == nil {
		return p
	}
	p.end = end[0]
	switch p.end {
	case 0:
	case 1:
		p.key, p.value = r.hash(), r.hash()
	case 2, 3:
		p.position = r.number()
		salt, digest := r.hash(), hash{}
		if p.end == 2 {
			digest = r.hash()
		} else if row := r.text(); len(row) > 0 {
			digest = sha256.Sum256(row)
		} else {
			r.fail("it shows an empty row")
		}
		p.value = sha256.Sum256(append(salt[:], digest[:]...))
	case 4:
		left := r.place(depth + 1)
		right := r.place(depth + 1)
		p.left, p.right = &left, &right
	default:
		r.fail(fmt.Sprintf("a path ends in an unknown way (%d)", p.end))
	}
	return p
}

// hash is the root that the paths of the keys lead to; `rows` gets the keys that have a row.
func (p place) hash(keys []hash, depth int, rows map[hash]bool) (hash, error) {
	bottom := depth + len(p.siblings)
	if bottom > 256 || !samePrefix(keys[0], keys[len(keys)-1], bottom) {
		return hash{}, errors.New("two keys part above the end of their path")
	}
	var at hash
	switch p.end {
	case 1:
		for _, key := range keys {
			if key == p.key || !samePrefix(key, p.key, bottom) {
				return hash{}, errors.New("the leaf of another key does not show that a key is absent")
			}
		}
		at = mapLeaf(p.key, p.value)
	case 2, 3:
		if p.position >= uint64(len(keys)) {
			return hash{}, errors.New("a row of a key that was not asked for")
		}
		rows[keys[p.position]] = true
		at = mapLeaf(keys[p.position], p.value)
	case 4:
		middle := 0
		for bottom < 256 && middle < len(keys) && bit(keys[middle], bottom) == 0 {
			middle++
		}
		if middle == 0 || middle == len(keys) {
			return hash{}, errors.New("a path forks where no two keys part")
		}
		left, err := p.left.hash(keys[:middle], bottom+1, rows)
		if err != nil {
			return hash{}, err
		}
		right, err := p.right.hash(keys[middle:], bottom+1, rows)
		if err != nil {
			return hash{}, err
		}
		at = sha256.Sum256(append(append([]byte{3}, left[:]...), right[:]...))
	}
	return climb(keys[0], at, p.siblings, depth), nil
}

// climb is the hash above `at`, which is below siblings that begin at a depth.
func climb(key, at hash, siblings []hash, depth int) hash {
	for level := len(siblings) - 1; level >= 0; level-- {
		left, right := at, siblings[level]
		if bit(key, depth+level) == 1 {
			left, right = right, left
		}
		at = sha256.Sum256(append(append([]byte{3}, left[:]...), right[:]...))
	}
	return at
}

func samePrefix(a, b hash, bits int) bool {
	for depth := 0; depth < bits; depth++ {
		if bit(a, depth) != bit(b, depth) {
			return false
		}
	}
	return true
}
