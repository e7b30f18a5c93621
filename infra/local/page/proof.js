// Verifies a proof file (c2sp.org/tlog-proof@v1) with WebCrypto only: RFC 6962 hashes and an Ed25519 signature.
// Trusts only the public key of its caller, and fetches nothing. Runs in browsers and in Node.

const HEADER = "c2sp.org/tlog-proof@v1";
const SIGNATURE = "— ";
const ED25519 = 1;

export class ProofError extends Error {}

export function fromBase64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    throw new ProofError(`not base64: ${text.slice(0, 40)}`);
  }
  if (btoa(raw) !== text) throw new ProofError("base64 that is not in its canonical form");
  return Uint8Array.from(raw, (character) => character.charCodeAt(0));
}

export const join = (...parts) => new Uint8Array(parts.flatMap((part) => [...part]));
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
export const equal = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);
export const leafHash = (entry) => sha256(join([0], entry));
const nodeHash = (left, right) => sha256(join([1], left, right));

/** `name+keyid+base64` -> {name, id, key}; throws unless the id matches the key. */
export async function parseKey(text) {
  const [name, id, ...rest] = text.trim().split("+");
  const raw = fromBase64(rest.join("+"));
  if (raw.length !== 33 || raw[0] !== ED25519) throw new ProofError("the key is not an Ed25519 key");
  const keyId = (await sha256(join(new TextEncoder().encode(`${name}\n`), raw))).slice(0, 4);
  if (id !== hex(keyId)) throw new ProofError(`the key's id should be ${hex(keyId)}`);
  const key = await crypto.subtle.importKey("raw", raw.slice(1), { name: "Ed25519" }, false, ["verify"]);
  return { name, id: keyId, key };
}

/** A signed checkpoint -> {origin, size, root}; throws unless the key signed it. */
export async function openCheckpoint(note, key) {
  const cut = note.lastIndexOf("\n\n");
  if (cut < 0) throw new ProofError("the checkpoint has no signature");
  const text = note.slice(0, cut + 1);
  const lines = note.slice(cut + 2).split("\n").filter(Boolean);
  const signatures = lines
    .filter((line) => line.startsWith(`${SIGNATURE}${key.name} `))
    .map((line) => fromBase64(line.slice(SIGNATURE.length + key.name.length + 1)));
  // A signature is matched by key name and id: the note may also have signatures of witnesses and of the log's other keys.
  const raw = signatures.find((bytes) => equal(bytes.slice(0, 4), key.id));
  if (!raw) throw new ProofError(`the checkpoint is not signed by ${key.name} (key ${hex(key.id)})`);
  const signed = await crypto.subtle.verify("Ed25519", key.key, raw.slice(4), new TextEncoder().encode(text));
  if (!signed) throw new ProofError("the checkpoint's signature does not hold");
  const [origin, size, root] = text.split("\n");
  if (origin !== key.name) throw new ProofError(`the checkpoint is of ${origin}, not of ${key.name}`);
  if (!/^(0|[1-9][0-9]{0,15})$/.test(size)) throw new ProofError("the checkpoint has no size");
  if (!Number.isSafeInteger(Number(size))) throw new ProofError("the log is too large for this browser");
  return { origin, size: Number(size), root: fromBase64(root) };
}

/** The root computed from a leaf hash and its inclusion path (RFC 9162, 2.1.3.2); throws if the path has the wrong length. */
export async function rootFrom(hash, index, size, path) {
  if (index >= size) throw new ProofError(`there is no leaf ${index} among ${size}`);
  let [at, last, root] = [index, size - 1, hash];
  for (const sibling of path) {
    if (last === 0) throw new ProofError("the proof is too long");
    if (at % 2 === 1 || at === last) {
      root = await nodeHash(sibling, root);
      while (at % 2 === 0 && at !== 0) [at, last] = [Math.floor(at / 2), Math.floor(last / 2)];
    } else {
      root = await nodeHash(root, sibling);
    }
    [at, last] = [Math.floor(at / 2), Math.floor(last / 2)];
  }
  if (last !== 0) throw new ProofError("the proof is too short");
  return root;
}

/** Verifies that `entry` is in the log: {index, size, origin, hashes, bytes}. Throws ProofError if it is not proven. */
export async function verifyProof(file, entry, keyText) {
  const [head, ...rest] = file.split("\n\n");
  const [header, ...lines] = head.split("\n");
  if (header !== HEADER) throw new ProofError("not a proof file");
  if (lines[0]?.startsWith("extra ")) lines.shift();
  const index = /^index (0|[1-9][0-9]{0,15})$/.exec(lines.shift() ?? "");
  if (!index) throw new ProofError("the proof file has no index");
  if (!Number.isSafeInteger(Number(index[1]))) throw new ProofError("the index is too large for this browser");
  const path = lines.map(fromBase64);
  if (path.some((hash) => hash.length !== 32)) throw new ProofError("a hash in the proof is not 32 bytes long");
  const key = await parseKey(keyText);
  const checkpoint = await openCheckpoint(rest.join("\n\n"), key);
  const root = await rootFrom(await leafHash(entry), Number(index[1]), checkpoint.size, path);
  if (!equal(root, checkpoint.root)) throw new ProofError("the entry does not lead to the signed root: it was changed");
  return { index: Number(index[1]), size: checkpoint.size, origin: checkpoint.origin, hashes: path.length, bytes: file.length };
}

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
