"""The log itself: leaves, SlateDB keys and store, the tree's frontier, signing, keys, watermarks and publishing."""
