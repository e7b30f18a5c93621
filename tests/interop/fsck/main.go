// Fsck checks a tlog-tiles log in a directory with Tessera's own checker: every tile from every entry.
//
//	fsck DIRECTORY KEY
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: fsck DIRECTORY KEY")
	}
	key, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := note.NewVerifier(strings.TrimSpace(string(key)))
	if err != nil {
		log.Fatal(err)
	}
	files := client.FileFetcher{Root: os.Args[1]}
	if err := fsck.New(verifier.Name(), verifier, files, leafHashes, fsck.Opts{N: 2}).Check(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// leafHashes are those of RFC 6962 over the entries of a bundle.
func leafHashes(data []byte) ([][]byte, error) {
	bundle := api.EntryBundle{}
	if err := bundle.UnmarshalText(data); err != nil {
		return nil, err
	}
	hashes := make([][]byte, 0, len(bundle.Entries))
	for _, entry := range bundle.Entries {
		hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(entry))
	}
	return hashes, nil
}
