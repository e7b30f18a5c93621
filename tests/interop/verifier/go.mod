module strandline.test/verifier

go 1.25.0
