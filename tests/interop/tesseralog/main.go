// Tesseralog is a log by Tessera, in a directory, that publishes only what its witnesses cosigned.
//
//	tesseralog DIRECTORY KEY POLICY ENTRIES
//
// It appends that many entries one after the other, each in a checkpoint of its own, and fails if a checkpoint is not
// published: the witnesses of the policy did not cosign it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: tesseralog DIRECTORY KEY POLICY ENTRIES")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	signer, err := note.NewSigner(strings.TrimSpace(string(read(os.Args[2]))))
	check(err)
	witnesses, err := tessera.NewWitnessGroupFromPolicy(read(os.Args[3]))
	check(err)
	driver, err := posix.New(ctx, posix.Config{Path: os.Args[1]})
	check(err)
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(100*time.Millisecond).
		WithBatching(1, 10*time.Millisecond).
		WithWitnesses(witnesses, &tessera.WitnessOptions{Timeout: 30 * time.Second}))
	check(err)
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 50*time.Millisecond)
	for number := range count {
		entry := tessera.NewEntry(fmt.Appendf(nil, "entry %d of %s", number, os.Args[1]))
		_, checkpoint, err := awaiter.Await(ctx, appender.Add(ctx, entry))
		check(err)
		if number == count-1 {
			fmt.Print(string(checkpoint))
		}
	}
	check(shutdown(ctx))
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	check(err)
	return data
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
