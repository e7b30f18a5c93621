// Checkpoint verifies a checkpoint by a policy, with three implementations that are not ours: torchwood's policies,
// transparency-dev's cosignature verifiers, and the signed notes of x/mod.
//
//	checkpoint POLICY CHECKPOINT
//
// It prints the origin, the size and the names of the keys that signed; it fails if the policy is not met.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"filippo.io/torchwood"
	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: checkpoint POLICY CHECKPOINT")
	}
	text, signed := read(os.Args[1]), read(os.Args[2])
	policy, err := torchwood.ParsePolicy(text)
	if err != nil {
		log.Fatalf("policy: %v", err)
	}
	checkpoint, _, err := torchwood.VerifyCheckpoint(signed, policy)
	if err != nil {
		log.Fatalf("torchwood: %v", err)
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers(string(text))...))
	if err != nil {
		log.Fatalf("note: %v", err)
	}
	fmt.Println(checkpoint.Origin)
	fmt.Println(checkpoint.N)
	for _, signature := range opened.Sigs {
		fmt.Println(signature.Name)
	}
}

// verifiers has the keys of the policy's logs (x/mod) and witnesses (transparency-dev/formats).
func verifiers(policy string) []note.Verifier {
	var found []note.Verifier
	for line := range strings.Lines(policy) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		var verifier note.Verifier
		var err error
		switch words[0] {
		case "log":
			verifier, err = note.NewVerifier(words[1])
		case "witness":
			verifier, err = fnote.NewVerifierForCosignatureV1(words[2])
		default:
			continue
		}
		if err != nil {
			log.Fatalf("key: %v", err)
		}
		found = append(found, verifier)
	}
	return found
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return data
}
