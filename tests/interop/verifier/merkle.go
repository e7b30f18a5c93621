package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

type hash = [32]byte

func leafHash(entry []byte) hash { return sha256.Sum256(append([]byte{0}, entry...)) }

func node(left, right hash) hash {
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// treeRoot is the Merkle Tree Hash of RFC 6962, 2.1.
func treeRoot(leaves []hash) hash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	return node(treeRoot(leaves[:k]), treeRoot(leaves[k:]))
}

// shown is a leaf hash at its index.
type shown struct {
	index int64
	hash  hash
}

// verifyBatch checks that all leaves, by ascending index, are in the tree. The proof has each hash that they do not
// give, row by row from the leaves up, left to right. For one leaf it is the audit path of RFC 6962.
func verifyBatch(leaves []shown, size int64, proof []hash, root hash) error {
	if len(leaves) == 0 {
		return errors.New("a proof of no leaf")
	}
	for at, leaf := range leaves {
		if leaf.index < 0 || leaf.index >= size || (at > 0 && leaves[at-1].index >= leaf.index) {
			return fmt.Errorf("index %d does not ascend, or is not in a tree of %d leaves", leaf.index, size)
		}
	}
	next := func() (hash, error) {
		if len(proof) == 0 {
			return hash{}, errors.New("the proof has too few hashes")
		}
		first := proof[0]
		proof = proof[1:]
		return first, nil
	}
	row := append([]shown(nil), leaves...)
	for width := size; width > 1; width = width/2 + width%2 {
		var above []shown
		for at := 0; at < len(row); at++ {
			index, computed := row[at].index, row[at].hash
			switch {
			case index%2 == 1:
				left, err := next()
				if err != nil {
					return err
				}
				computed = node(left, computed)
			case at+1 < len(row) && row[at+1].index == index+1:
				at++
				computed = node(computed, row[at].hash)
			case index+1 < width:
				right, err := next()
				if err != nil {
					return err
				}
				computed = node(computed, right)
			}
			above = append(above, shown{index / 2, computed})
		}
		row = above
	}
	if len(proof) != 0 {
		return errors.New("the proof has too many hashes")
	}
	if row[0].hash != root {
		return errors.New("the proof leads to another root")
	}
	return nil
}

// verifyConsistency is RFC 9162, 2.1.4.2. Nothing is shown about an empty tree.
func verifyConsistency(size1, size2 int64, proof []hash, root1, root2 hash) error {
	if size1 <= 0 || size1 > size2 {
		return errors.New("no such proof of consistency")
	}
	if size1 == size2 {
		if len(proof) != 0 || root1 != root2 {
			return errors.New("two trees of one size differ")
		}
		return nil
	}
	if len(proof) == 0 {
		return errors.New("the proof has too few hashes")
	}
	if size1&(size1-1) == 0 {
		proof = append([]hash{root1}, proof...)
	}
	fn, sn := size1-1, size2-1
	for fn&1 == 1 {
		fn, sn = fn>>1, sn>>1
	}
	old, now := proof[0], proof[0]
	for _, sibling := range proof[1:] {
		if sn == 0 {
			return errors.New("the proof has too many hashes")
		}
		if fn&1 == 1 || fn == sn {
			old, now = node(sibling, old), node(sibling, now)
			for fn != 0 && fn&1 == 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			now = node(now, sibling)
		}
		fn, sn = fn>>1, sn>>1
	}
	if sn != 0 || old != root1 || now != root2 {
		return errors.New("the trees are not consistent")
	}
	return nil
}

// other is another key of the map, with the hash of its value, which shows that a key is absent.
type other struct{ key, value hash }

// verifyMap checks that the map with this root has the value under the key; with a nil value, that it has no such key.
func verifyMap(key hash, value []byte, siblings []hash, another *other, root hash) error {
	var computed hash // a subtree without a key
	switch {
	case len(siblings) > 256:
		return errors.New("a path in the map has at most 256 hashes")
	case value != nil && another != nil:
		return errors.New("a value and the leaf of another key")
	case value != nil:
		computed = mapLeaf(key, sha256.Sum256(value))
	case another != nil:
		if another.key == key {
			return errors.New("the other key is the key itself")
		}
		for depth := range siblings {
			if bit(another.key, depth) != bit(key, depth) {
				return errors.New("the other key is not on the key's path")
			}
		}
		computed = mapLeaf(another.key, another.value)
	}
	for depth := len(siblings) - 1; depth >= 0; depth-- {
		left, right := computed, siblings[depth]
		if bit(key, depth) == 1 {
			left, right = right, left
		}
		computed = sha256.Sum256(append(append([]byte{3}, left[:]...), right[:]...))
	}
	if computed != root {
		return errors.New("the path leads to another root of the map")
	}
	return nil
}

func mapLeaf(key, value hash) hash {
	return sha256.Sum256(append(append([]byte{2}, key[:]...), value[:]...))
}

func bit(key hash, depth int) byte { return key[depth/8] >> (7 - depth%8) & 1 }

// decode64 reads standard base64 with padding in its one spelling.
func decode64(text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(data) != text {
		return nil, fmt.Errorf("not base64: %.40q", text)
	}
	return data, nil
}

func decodeHash(text string) (hash, error) {
	data, err := decode64(text)
	if err != nil || len(data) != 32 {
		return hash{}, fmt.Errorf("not a hash in base64: %.60q", text)
	}
	return hash(data), nil
}

func decodeHashes(v value) ([]hash, error) {
	items, err := v.list()
	if err != nil {
		return nil, err
	}
	var hashes []hash
	for _, item := range items {
		text, err := item.str()
		if err != nil {
			return nil, err
		}
		h, err := decodeHash(text)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, h)
	}
	return hashes, nil
}

func less(a, b hash) int { return bytes.Compare(a[:], b[:]) }
