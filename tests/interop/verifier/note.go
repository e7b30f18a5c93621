package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A verifier key of c2sp.org/signed-note, Ed25519.
type verifierKey struct {
	name   string
	id     string // 4 bytes
	public ed25519.PublicKey
}

func parseKey(text string) (verifierKey, error) {
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || !isName(parts[0]) {
		return verifierKey{}, errors.New("a verifier key is name+id+base64")
	}
	raw, err := decode64(parts[2])
	if err != nil || len(raw) != 33 || raw[0] != 1 {
		return verifierKey{}, errors.New("not an Ed25519 verifier key")
	}
	digest := sha256.Sum256(append([]byte(parts[0]+"\n"), raw...))
	if parts[1] != hex.EncodeToString(digest[:4]) {
		return verifierKey{}, errors.New("the key id is wrong")
	}
	return verifierKey{parts[0], string(digest[:4]), raw[1:]}, nil
}

func isName(name string) bool {
	return name != "" && !strings.Contains(name, "+") &&
		strings.IndexFunc(name, func(r rune) bool { return unicode.IsSpace(r) || r < 0x20 }) < 0
}

// checkpoint is c2sp.org/tlog-checkpoint.
type checkpoint struct {
	origin string
	size   int64
	root   hash
}

const maxNote = 1_000_000

// openCheckpoint verifies a signed note: the first signature by each known key is right, and there is one.
func openCheckpoint(note []byte, keys []verifierKey, origin string) (checkpoint, error) {
	if len(note) > maxNote || !utf8.Valid(note) {
		return checkpoint{}, errors.New("the note is too long, or not UTF-8")
	}
	if bytes.IndexFunc(note, func(r rune) bool { return r < 0x20 && r != '\n' }) >= 0 {
		return checkpoint{}, errors.New("the note has control characters")
	}
	end := bytes.LastIndex(note, []byte("\n\n"))
	if end < 0 || end+2 == len(note) || note[len(note)-1] != '\n' {
		return checkpoint{}, errors.New("the note has no signatures")
	}
	text, lines := note[:end+1], strings.Split(string(note[end+2:len(note)-1]), "\n")
	if len(lines) > 100 {
		return checkpoint{}, errors.New("the note has too many signatures")
	}
	signed := map[string]bool{}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "— ")
		name, encoded, found := strings.Cut(rest, " ")
		raw, err := decode64(encoded)
		if !ok || !found || err != nil || len(raw) < 5 || !isName(name) {
			return checkpoint{}, fmt.Errorf("not a signature line: %.40q", line)
		}
		for _, key := range keys {
			if key.name != name || key.id != string(raw[:4]) || signed[name+key.id] {
				continue
			}
			if !ed25519.Verify(key.public, text, raw[4:]) {
				return checkpoint{}, errors.New("a signature is wrong")
			}
			signed[name+key.id] = true
		}
	}
	names := map[string]bool{}
	for _, key := range keys {
		if signed[key.name+key.id] {
			names[key.name] = true
		}
	}
	if len(names) == 0 {
		return checkpoint{}, errors.New("no known key signed the note")
	}
	parsed, err := parseCheckpoint(string(text))
	if err != nil {
		return checkpoint{}, err
	}
	if (origin == "" && !names[parsed.origin]) || (origin != "" && parsed.origin != origin) {
		return checkpoint{}, errors.New("the checkpoint is of another log")
	}
	return parsed, nil
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)

func parseDecimal(text string) (int64, error) {
	if !decimal.MatchString(text) {
		return 0, fmt.Errorf("not a decimal number: %.40q", text)
	}
	return strconv.ParseInt(text, 10, 64)
}

func parseCheckpoint(text string) (checkpoint, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 {
		return checkpoint{}, errors.New("a checkpoint has at least three lines")
	}
	for _, line := range lines {
		if line == "" {
			return checkpoint{}, errors.New("a checkpoint has an empty line")
		}
	}
	size, err := parseDecimal(lines[1])
	if err != nil {
		return checkpoint{}, err
	}
	root, err := decodeHash(lines[2])
	return checkpoint{lines[0], size, root}, err
}

// proofFile is c2sp.org/tlog-proof@v1.
type proofFile struct {
	index      int64
	hashes     []hash
	checkpoint []byte
	extra      []byte
}

func parseProof(data []byte) (proofFile, error) {
	head, note, found := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !found || len(data) > 2*maxNote || lines[0] != "c2sp.org/tlog-proof@v1" {
		return proofFile{}, errors.New("not a proof file")
	}
	lines = lines[1:]
	var extra []byte
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		decoded, err := decode64(lines[0][6:])
		if err != nil || len(decoded) == 0 {
			return proofFile{}, errors.New("the extra data is not base64")
		}
		extra, lines = decoded, lines[1:]
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return proofFile{}, errors.New("the proof file has no index")
	}
	index, err := parseDecimal(lines[0][6:])
	if err != nil || len(lines)-1 > 63 {
		return proofFile{}, errors.New("the index is not a number, or there are too many hashes")
	}
	proof := proofFile{index: index, checkpoint: note, extra: extra}
	for _, line := range lines[1:] {
		h, err := decodeHash(line)
		if err != nil {
			return proofFile{}, err
		}
		proof.hashes = append(proof.hashes, h)
	}
	return proof, nil
}

// verifyProof checks that the entry is in the log, and returns its index and the checkpoint.
func verifyProof(data, entry []byte, keys []verifierKey, origin string) (int64, checkpoint, error) {
	proof, err := parseProof(data)
	if err != nil {
		return 0, checkpoint{}, err
	}
	signed, err := openCheckpoint(proof.checkpoint, keys, origin)
	if err != nil {
		return 0, checkpoint{}, err
	}
	leaf := []shown{{proof.index, leafHash(entry)}}
	return proof.index, signed, verifyBatch(leaf, signed.size, proof.hashes, signed.root)
}
