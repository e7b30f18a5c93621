// Trust policies (c2sp.org/tlog-policy) in the browser: how many of which witnesses must have cosigned a checkpoint.
// A policy is the reader's own. Nothing in a checkpoint or proof can change what it demands.

import { ProofError, equal, fromBase64, hex, join, sha256, verifyProof } from "./proof.js";

const COSIGNATURE = 4;
const LINE = "a line is `log <vkey> [<url>]`, `witness <name> <vkey> [<url>]`, `group <name> all|any|<k> <name>…` or `quorum <name>`";

/** Verifies a proof file as `verifyProof` does, and that the policy's witnesses cosigned its checkpoint; adds their names as `witnesses`. */
export async function verifyWitnessed(file, entry, keyText, policyText) {
  const policy = await parsePolicy(policyText);
  if (policy.logs.length && !policy.logs.includes(keyText.trim())) throw new ProofError("the policy names other logs than this one");
  const proof = await verifyProof(file, entry, keyText);
  return { ...proof, witnesses: await checkQuorum(file.slice(file.indexOf("\n\n") + 2), policy) };
}

/** The policy in a text: {logs, witnesses, groups, quorum}. Throws ProofError with the line if it cannot be used. */
export async function parsePolicy(text) {
  const policy = { logs: [], witnesses: new Map(), groups: new Map(), quorum: undefined };
  const members = new Set();
  const publicKeys = new Set();
  for (const [at, line] of text.split("\n").entries()) {
    const words = line.split(/[ \t]+/).filter(Boolean);
    if (!words.length || words[0].startsWith("#")) continue;
    try {
      await define(policy, members, publicKeys, words);
    } catch (error) {
      if (!(error instanceof ProofError)) throw error;
      throw new ProofError(`the policy's line ${at + 1}: ${error.message}`);
    }
  }
  if (policy.quorum === undefined) throw new ProofError("the policy has no line `quorum <name>`");
  return policy;
}

async function define(policy, members, publicKeys, [keyword, ...words]) {
  const known = (name) => policy.witnesses.has(name) || policy.groups.has(name);
  const refuse = (message) => {
    throw new ProofError(message);
  };
  const add = async (vkey, type) => {
    const key = await parseVkey(vkey, type);
    const raw = hex(key.raw);
    if (publicKeys.has(raw)) refuse("a log or a witness before has the same public key");
    publicKeys.add(raw);
    return key;
  };
  const isNew = (name) => name === "none" || known(name) ? refuse(`the name ${name} is taken`) : name;
  if (keyword === "log" && [1, 2].includes(words.length)) {
    await add(words[0], 1);
    policy.logs.push(words[0]);
  } else if (keyword === "witness" && [2, 3].includes(words.length)) {
    policy.witnesses.set(isNew(words[0]), await add(words[1], COSIGNATURE));
  } else if (keyword === "group" && words.length >= 3) {
    const [name, threshold, ...inside] = words;
    isNew(name);
    for (const [at, member] of inside.entries()) {
      if (!known(member)) refuse(`the member ${member} is not defined on a line before`);
      if (members.has(member) || inside.indexOf(member) !== at) refuse(`${member} is a member of a group already`);
    }
    const needed = threshold === "all" ? inside.length : threshold === "any" ? 1 : /^[1-9][0-9]{0,5}$/.test(threshold) ? Number(threshold) : refuse("a threshold is `all`, `any` or a number");
    if (needed > inside.length) refuse(`the group ${name} needs ${needed} of ${inside.length} members`);
    for (const member of inside) members.add(member);
    policy.groups.set(name, { needed, inside });
  } else if (keyword === "quorum" && words.length === 1) {
    if (policy.quorum !== undefined) refuse("this is the second quorum");
    if (words[0] !== "none" && !known(words[0])) refuse(`the quorum ${words[0]} is not defined on a line before`);
    policy.quorum = words[0];
  } else {
    refuse(LINE);
  }
}

async function parseVkey(text, type) {
  const [name, id, ...rest] = text.split("+");
  const raw = fromBase64(rest.join("+"));
  if (!name || raw.length !== 33 || raw[0] !== type) throw new ProofError("not a key of this kind");
  const keyId = (await sha256(join(new TextEncoder().encode(`${name}\n`), raw))).slice(0, 4);
  if (id !== hex(keyId)) throw new ProofError(`the key's id should be ${hex(keyId)}`);
  return { name, id: keyId, raw: raw.slice(1) };
}

/** The names of the policy's witnesses that cosigned the checkpoint. Throws if their quorum is not met, or one signed another text. */
export async function checkQuorum(note, policy) {
  const cut = note.lastIndexOf("\n\n");
  const text = note.slice(0, cut + 1);
  const lines = note.slice(cut + 2).split("\n").filter(Boolean);
  const cosigned = new Set();
  for (const [name, witness] of policy.witnesses) {
    const prefix = `— ${witness.name} `;
    const own = lines.filter((line) => line.startsWith(prefix)).map((line) => fromBase64(line.slice(prefix.length)));
    const raw = own.find((bytes) => equal(bytes.slice(0, 4), witness.id));
    if (!raw) continue;
    if (!(await isCosigned(witness, text, raw.slice(4)))) throw new ProofError(`the cosignature by ${name} is not over this checkpoint`);
    cosigned.add(name);
  }
  const isMet = (name) => {
    if (name === "none" || policy.witnesses.has(name)) return name === "none" || cosigned.has(name);
    const { needed, inside } = policy.groups.get(name);
    return inside.filter(isMet).length >= needed;
  };
  if (!isMet(policy.quorum)) throw new ProofError(`the quorum ${policy.quorum} is not met: ${[...cosigned].join(", ") || "no witness"} cosigned`);
  return [...cosigned];
}

async function isCosigned(witness, text, signature) {
  if (signature.length !== 72 || signature[0] >= 0x80) return false;
  const time = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0);
  const message = new TextEncoder().encode(`cosignature/v1\ntime ${time}\n${text}`);
  const key = await crypto.subtle.importKey("raw", witness.raw, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify("Ed25519", key, signature.slice(8), message);
}
