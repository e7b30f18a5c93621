// A verifier of the timeline's proofs that follows docs/spec/ and docs/row-digest.md, with no code of ours and nothing but
// Go's standard library. It reads requests from stdin, one JSON object a line, and answers each with a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type request struct {
	Kind       string // checkpoint, proof, leaf, as-of, row, feed or erasures
	Keys       []string
	Origin     string
	Data       []byte // base64 in JSON
	Entry      []byte
	Key        string // of a row, as a JSON object, or a list of them
	Table      string
	UUID       *string
	Index      *int64
	TimeMS     *int64 `json:"time_ms"`
	Checkpoint []byte // a note: the newest that the caller knows, or for a feed the one that it kept
	Since      int64
	Until      int64
	Writer     bool
	Leaves     [][]byte // of one table, oldest first
	Records    [][]byte
}

type response struct {
	OK   bool   `json:"ok"`
	What string `json:"what"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	decoder := json.NewDecoder(in)
	for {
		var r request
		if err := decoder.Decode(&r); err != nil {
			return
		}
		what, err := r.verify()
		if err != nil {
			what = err.Error()
		}
		out.Encode(response{err == nil, what})
	}
}

func (r request) verify() (string, error) {
	var keys []verifierKey
	for _, text := range r.Keys {
		key, err := parseKey(text)
		if err != nil {
			return "", err
		}
		keys = append(keys, key)
	}
	var known *checkpoint
	if r.Checkpoint != nil {
		opened, err := openCheckpoint(r.Checkpoint, keys, r.Origin)
		if err != nil {
			return "", err
		}
		known = &opened
	}
	uuid := ""
	if r.UUID != nil {
		uuid = *r.UUID
	}
	switch r.Kind {
	case "checkpoint":
		c, err := openCheckpoint(r.Data, keys, r.Origin)
		return fmt.Sprintf("size %d", c.size), err
	case "proof":
		index, _, err := verifyProof(r.Data, r.Entry, keys, r.Origin)
		return fmt.Sprintf("index %d", index), err
	case "leaf":
		l, err := parseLeaf(r.Data)
		return fmt.Sprintf("sequence %d", l.sequence), err
	case "as-of":
		q := question{keys, r.Origin, r.Table, r.Index, r.TimeMS, r.UUID, known}
		return "verified", verifyAsOf(r.Data, q)
	case "row":
		key, err := parseJSON([]byte(r.Key))
		if err != nil {
			return "", err
		}
		rows := []value{key}
		if key.kind == '[' {
			rows = key.items
		}
		found, err := verifyRows(r.Data, question{keys, r.Origin, r.Table, r.Index, r.TimeMS, r.UUID, known}, rows)
		return fmt.Sprintf("exists %v", found), err
	case "feed":
		want := expected{keys, r.Origin, r.Table, uuid, r.Since, r.Until, known, r.Writer}
		reached, err := verifyFeed(r.Data, want)
		return fmt.Sprintf("reached %d", reached), err
	case "erasures":
		rows, changes, err := verifyErasures(r.Leaves, r.Records)
		return fmt.Sprintf("rows %d, changes %d", rows, changes), err
	}
	return "", fmt.Errorf("no kind %q", r.Kind)
}
