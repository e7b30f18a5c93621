// The rules of a leaf (strandline/commit@v2, docs/spec/timeline.md, section 2) that its own fields decide.

import { ProofError } from "./proof.js";

/** Its fields in their order, without `format`, each with its kind in a row proof. */
export const FIELDS = [
  ["attested", "words"], ["changes_count", "count"], ["changes_root", "hash"], ["committed_ms", "signed"],
  ["content_count", "count"], ["content_root", "hash"], ["manifest_list_sha256", "hash"], ["map_root", "hash"],
  ["metadata_sha256", "hash"], ["operation", "words"], ["parent_id", "id"], ["ref", "words"], ["rows_digest", "hash"],
  ["schema_sha256", "hash"], ["sequence", "count"], ["sequenced_ms", "count"], ["snapshot_id", "id"],
  ["state_digest", "hash"], ["state_missing", "words"], ["state_root", "hash"], ["table", "words"], ["table_uuid", "uuid"],
];

const REQUIRED = ["committed_ms", "content_count", "operation", "sequence", "sequenced_ms", "table", "table_uuid"];
const SNAPSHOTS = ["append", "replace", "overwrite", "delete"];
const OF_MAIN = ["create", "rename", "schema", "metadata", "erase", "drop", "reset", "transaction", "vectors"];
const OF_BRANCHES = ["rollback", "branch"];
const OF_OTHERS = ["tag", "unref"];
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}\u034F\u115F\u1160\uFE00-\uFE0F\u{E0100}-\u{E01EF}]/gu;

const isLikeMain = (ref) => ref !== "main" && ref.normalize("NFKC").replace(UNSEEN, "").toLowerCase() === "main";

/** Throws ProofError for a leaf that no log may have, whatever proves it. `text`: its canonical JSON. */
export function checkLeaf(leaf, text) {
  const refuse = (why) => {
    throw new ProofError(`not a leaf of the timeline: ${why}`);
  };
  if (new TextEncoder().encode(text).length > 1664) refuse("it is too long");
  if (REQUIRED.some((name) => leaf[name] === null || leaf[name] === undefined)) refuse("it lacks a field");
  const { operation, ref, snapshot_id: snapshot, parent_id: parent } = leaf;
  const changes = [leaf.attested, leaf.changes_count, leaf.changes_root].filter((value) => value === null).length;
  if (changes % 3 || ![null, "lake", "writer"].includes(leaf.attested)) refuse("it has only some of its changes");
  const isKnown = SNAPSHOTS.includes(operation) || OF_MAIN.includes(operation) || OF_BRANCHES.includes(operation) || OF_OTHERS.includes(operation);
  if (!isKnown) refuse(`it has the operation ${operation}`);
  if (ref !== null && isLikeMain(ref)) refuse("its reference can be mistaken for main");
  if (OF_MAIN.includes(operation) && ref !== "main") refuse("its operation is of main alone");
  if (OF_BRANCHES.includes(operation) && ref === null) refuse("its operation is of a branch");
  if (OF_OTHERS.includes(operation) && (ref === null || ref === "main")) refuse("its operation is not of main");
  if (["create", "rename", "schema", "metadata", "erase"].includes(operation) && snapshot !== parent) refuse("it moves main");
  if (operation === "erase" && (leaf.content_root === null || leaf.content_count === 0)) refuse("it erases, but has no record of what");
  if (operation === "drop" && snapshot !== null) refuse("it drops the table, but has a snapshot");
  const moves = ref === "main" && ["rollback", "branch", "transaction"].includes(operation);
  if ((SNAPSHOTS.includes(operation) || moves) && snapshot === null) refuse("it has no snapshot");
  const states = ref === "main" && operation !== "drop" && operation !== "vectors";
  const state = [leaf.state_digest, leaf.state_root, leaf.state_missing];
  if (!states && state.some((value) => value !== null)) refuse("it states rows, but is not about them");
  if (leaf.state_root !== null && (leaf.state_digest === null || leaf.state_missing !== null)) refuse("its state is not complete");
  if (![null, "size", "unreadable", "duplicate-key", "off"].includes(leaf.state_missing)) refuse("its state is missing for no reason");
}
