// Verifies a row proof (strandline/rows@v1, docs/spec/timeline.md, section 6): which keys have a row, and that there is no
// other of them. Computes each hash from the rows up to the leaf; proof.js then checks the leaf. Fetches nothing.

import { ProofError, equal, fromBase64, hex, join, sha256 } from "./proof.js";
import { checkLeaf, FIELDS } from "./leaf.js";

const FORMAT = "strandline/rows@v1\n";
const EMPTY = new Uint8Array(32);
const utf8 = new TextEncoder();
const bit = (key, depth) => (key[depth >> 3] >> (7 - (depth & 7))) & 1;
const node = (left, right) => sha256(join([3], left, right));
const mapLeaf = (key, commitment) => sha256(join([2], key, commitment));

/** Takes the parts of a file one after the other; throws ProofError if one is malformed. */
class Reader {
  constructor(bytes) {
    [this.bytes, this.at] = [bytes, 0];
  }

  take(size) {
    if (size > this.bytes.length - this.at) throw new ProofError("the file ends too soon");
    this.at += size;
    return this.bytes.slice(this.at - size, this.at);
  }

  number() {
    let [value, shift] = [0n, 0n];
    for (;;) {
      const byte = this.take(1)[0];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) {
        if (byte === 0 && shift > 0n) throw new ProofError("a number is not in its shortest form");
        if (value >= 1n << 64n) throw new ProofError("a number has more than 64 bits");
        return value;
      }
      shift += 7n;
      if (shift > 63n) throw new ProofError("a number has more than 64 bits");
    }
  }

  count() {
    const value = this.number();
    if (value >= 1n << 53n) throw new ProofError("a number is not exact");
    return Number(value);
  }

  signed() {
    const value = this.number();
    const number = Number(value & 1n ? -(value >> 1n) - 1n : value >> 1n);
    if (!Number.isSafeInteger(number)) throw new ProofError("a number is not exact");
    return number;
  }

  text() {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.take(this.count()));
    } catch (error) {
      throw error instanceof ProofError ? error : new ProofError("a text is not UTF-8");
    }
  }

  words() {
    const text = this.text();
    if (!text) throw new ProofError("a text is empty");
    return text;
  }

  id() {
    return String(BigInt.asIntN(64, BigInt(`0x${hex(this.take(8))}`)));
  }

  hash() {
    return this.take(32);
  }

  uuid() {
    if (this.bytes[this.at] !== 0) {
      const text = this.words();
      if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)) throw new ProofError("a uuid is spelt out");
      return text;
    }
    this.take(1);
    return hex(this.take(16)).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }

  path() {
    const count = this.count();
    if (count > 256) throw new ProofError("a path has more than 256 hashes");
    const bitmap = this.take(Math.ceil(count / 8));
    const hashes = Array.from({ length: count }, (_, at) => {
      if (!((bitmap[at >> 3] >> (7 - (at & 7))) & 1)) return EMPTY;
      const hash = this.hash();
      if (equal(hash, EMPTY)) throw new ProofError("an empty hash is spelt out");
      return hash;
    });
    if (count % 8 && (bitmap[bitmap.length - 1] << count % 8) & 255) throw new ProofError("a path has bits for no hash");
    return hashes;
  }

  /** A leaf without its map root, and what it leaves out if it is of the table in question: {fields, ofTable}. */
  leaf() {
    const bits = this.take(3).reduce((value, byte) => (value << 8) | byte, 0);
    const ofTable = Boolean(bits & 2);
    if (bits & 1) throw new ProofError("a leaf has an unknown bit");
    const fields = { format: "strandline/commit@v2" };
    FIELDS.forEach(([name, kind], at) => {
      const given = (bits >> (23 - at)) & 1;
      const leftOut = name === "map_root" || (ofTable && (name === "table" || name === "table_uuid"));
      if (leftOut && given) throw new ProofError("a leaf gives what it leaves out");
      if (leftOut) return;
      fields[name] = !given ? null : ofTable && name === "state_root" ? "" : kind === "hash" ? hex(this.hash()) : this[kind]();
    });
    return { fields, ofTable };
  }

  pairs() {
    const count = this.count();
    if (count > 100_000) throw new ProofError("a table has too many columns");
    const pairs = Array.from({ length: count }, () => [this.count(), this.text()]);
    const ascends = pairs.every(([id], at) => id > 0 && id < 2 ** 31 && (at === 0 || pairs[at - 1][0] < id));
    if (!ascends) throw new ProofError("ids of columns do not ascend");
    return pairs;
  }

  place(depth) {
    const siblings = this.path();
    if (depth + siblings.length > 256) throw new ProofError("a path has more than 256 hashes");
    const place = { siblings, end: this.take(1)[0] };
    if (place.end === 1) [place.key, place.commitment] = [this.hash(), this.hash()];
    else if (place.end === 2) [place.position, place.salt, place.digest] = [this.count(), this.hash(), this.hash()];
    else if (place.end === 3) [place.position, place.salt, place.row] = [this.count(), this.hash(), this.take(this.count())];
    else if (place.end === 4) {
      place.halves = [this.place(depth + siblings.length + 1), this.place(depth + siblings.length + 1)];
    } else if (place.end !== 0) throw new ProofError("a path ends in an unknown way");
    if (place.row?.length === 0) throw new ProofError("it shows an empty row");
    return place;
  }
}

const agree = (a, b, bits) => Array.from({ length: bits }, (_, depth) => depth).every((depth) => bit(a, depth) === bit(b, depth));

/** The root that these keys' paths lead to; `rows` gets hex key digest -> {digest, row} of those that have one. */
async function rootOf(place, keys, depth, rows) {
  const bottom = depth + place.siblings.length;
  if (!agree(keys[0], keys[keys.length - 1], bottom)) throw new ProofError("two keys part above the end of their path");
  let at = EMPTY;
  if (place.end === 1) {
    if (keys.some((key) => equal(key, place.key)) || !agree(place.key, keys[0], bottom)) {
      throw new ProofError("the leaf of another key does not show that a key is absent");
    }
    at = await mapLeaf(place.key, place.commitment);
  } else if (place.end === 2 || place.end === 3) {
    if (place.position >= keys.length) throw new ProofError("it shows the row of a key that was not asked for");
    const digest = place.digest ?? (await sha256(place.row));
    rows.set(hex(keys[place.position]), { digest, row: place.row });
    at = await mapLeaf(keys[place.position], await sha256(join(place.salt, digest)));
  } else if (place.end === 4) {
    const halves = [0, 1].map((side) => keys.filter((key) => bottom < 256 && bit(key, bottom) === side));
    if (halves.some((half) => half.length === 0)) throw new ProofError("a path forks where no two keys part");
    at = await node(
      await rootOf(place.halves[0], halves[0], bottom + 1, rows),
      await rootOf(place.halves[1], halves[1], bottom + 1, rows),
    );
  }
  return climb(keys[0], at, place.siblings, depth);
}

async function climb(key, hash, siblings, depth) {
  let at = hash;
  for (let level = siblings.length - 1; level >= 0; level -= 1) {
    at = bit(key, depth + level) ? await node(siblings[level], at) : await node(at, siblings[level]);
  }
  return at;
}

const int64 = (number) => {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(number));
  return bytes;
};
const int32 = (number) => int64(number).slice(4);

/** Tag, slot and payload of a key's value (docs/row-digest.md). */
function encoded(kind, text) {
  const wrong = () => new ProofError(`${text} is not a value of type ${kind}`);
  if (kind === "int" || kind === "long") {
    if (!/^(0|-?[1-9][0-9]{0,18})$/.test(text)) throw wrong();
    const [number, size] = [BigInt(text), kind === "int" ? 32 : 64];
    if (BigInt.asIntN(size, number) !== number) throw wrong();
    return [2, int64(number), []];
  }
  if (kind === "boolean") {
    if (text !== "true" && text !== "false") throw wrong();
    return [1, int64(text === "true" ? 1 : 0), []];
  }
  if (kind === "date") {
    const ms = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : NaN;
    if (Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 10) !== text) throw wrong();
    return [5, int64(ms / 86_400_000), []];
  }
  if (kind === "string") return [11, int64(utf8.encode(text).length), utf8.encode(text)];
  if (kind === "uuid") {
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)) throw wrong();
    return [12, int64(16), Uint8Array.from(text.replaceAll("-", "").match(/../g), (pair) => parseInt(pair, 16))];
  }
  throw new ProofError(`this page checks no keys of type ${kind}: use strandline proof verify`);
}

async function keyDigest(columns, key, row) {
  const names = key.map(([id]) => columns.get(id));
  if (names.length !== Object.keys(row).length || names.some((name) => !Object.hasOwn(row, name))) {
    throw new ProofError(`the table's key is (${names.join(", ")})`);
  }
  const values = key.map(([id, kind]) => [id, ...encoded(kind, row[columns.get(id)])]);
  const slots = values.flatMap(([id, tag, slot]) => [int32(id), [tag], slot]);
  return sha256(join(int32(0), [15], int64(key.length), ...slots, ...values.map(([, , , payload]) => payload)));
}

/** Field id -> value as text, of a row of plain types; undefined for other rows, whose digest says what they are. */
function decodeRow(row) {
  const view = new DataView(row.buffer, row.byteOffset, row.length);
  const [count, values] = [Number(view.getBigInt64(5)), new Map()];
  let rest = 13 + 13 * count;
  for (let at = 13; at < 13 + 13 * count; at += 13) {
    const [id, tag, slot] = [view.getUint32(at), row[at + 4], view.getBigInt64(at + 5)];
    const text = () => row.slice(rest, (rest += Number(slot)));
    if (tag === 1) values.set(id, slot ? "true" : "false");
    else if (tag === 2) values.set(id, String(slot));
    else if (tag === 3) values.set(id, String(view.getFloat64(at + 5)));
    else if (tag === 5) values.set(id, new Date(Number(slot) * 86_400_000).toISOString().slice(0, 10));
    else if (tag === 11) values.set(id, new TextDecoder().decode(text()));
    else if (tag === 12) values.set(id, hex(text()));
    else return undefined;
  }
  return values;
}

function readable(row) {
  try {
    return decodeRow(row);
  } catch (error) {
    if (error instanceof RangeError) throw new ProofError("the row that it shows is not the encoding of a row");
    throw error;
  }
}

/**
 * The leaf's entry that the file leads to, and each row's outcome; throws ProofError. Nothing is proven before the entry is.
 * `table` and `rows` (key column -> text, for each key) are what was asked for.
 */
export async function readRows(file, table, rows) {
  const line = file.split("\n")[1] ?? "";
  if (!line.startsWith("extra ")) throw new ProofError("not the proof of a row");
  const extra = fromBase64(line.slice(6));
  if (!equal(extra.slice(0, FORMAT.length), utf8.encode(FORMAT))) throw new ProofError("not the proof of a row, strandline/rows@v1");
  const reader = new Reader(extra.slice(FORMAT.length));
  const leaf = reader.leaf();
  const entry = { index: reader.count(), main_index: reader.count(), sequence: reader.count(), snapshot_id: null };
  const kind = reader.take(1)[0];
  if (kind > 1) throw new ProofError("a table neither has a snapshot nor has none");
  if (kind === 1) entry.snapshot_id = reader.id();
  const tableUuid = reader.uuid();
  const mapPath = reader.path();
  const [columns, key] = [reader.pairs(), reader.pairs()];
  const place = reader.place(0);
  if (reader.at !== reader.bytes.length) throw new ProofError("it is about a time: use strandline proof verify");
  const names = new Map(columns);
  const isKey = key.length > 0 && key.every(([id]) => names.has(id)) && new Set(names.values()).size === columns.length;
  if (!isKey) throw new ProofError("the description of the state map is not one");

  const digests = await Promise.all(rows.map((row) => keyDigest(names, key, row)));
  const sorted = [...new Map(digests.map((digest) => [hex(digest), digest])).entries()].sort(([a], [b]) => (a < b ? -1 : 1));
  const found = new Map();
  const stateMap = await rootOf(place, sorted.map(([, digest]) => digest), 0, found);
  const description = utf8.encode(JSON.stringify({ columns, format: "strandline/state@v1", key }));
  const stateRoot = hex(await sha256(join([4], await sha256(description), stateMap)));
  const value = utf8.encode(JSON.stringify({ ...entry, state_root: stateRoot, table_uuid: tableUuid }));
  const tableKey = await sha256(utf8.encode(`strandline/table\n${table}`));
  const tablesRoot = await climb(tableKey, await mapLeaf(tableKey, await sha256(value)), mapPath, 0);

  const { fields } = leaf;
  fields.map_root = hex(tablesRoot);
  const isSame = (own) => own === null || own === stateRoot;
  if (leaf.ofTable) {
    Object.assign(fields, { table, table_uuid: tableUuid, state_root: fields.state_root === null ? null : stateRoot });
  } else if (fields.table === table && fields.table_uuid === tableUuid && isSame(fields.state_root)) {
    throw new ProofError("the leaf repeats what can be left out");
  }
  const text = JSON.stringify(fields, Object.keys(fields).sort());
  checkLeaf(fields, text);
  return {
    entry: utf8.encode(text),
    latest: entry,
    tableUuid,
    rows: rows.map((row, at) => {
      const one = found.get(hex(digests[at]));
      if (!one) return { ...row, exists: false };
      const values = one.row && readable(one.row);
      const shown = values ? Object.fromEntries(columns.map(([id, name]) => [name, values.get(id) ?? null])) : { ...row, digest: hex(one.digest) };
      return { ...shown, exists: true };
    }),
  };
}

/** Verifies a row proof at an index of the timeline. `verify(file, entry)`: proof.js or policy.js, with what is trusted. */
export async function verifyRows(file, { table, rows, index }, verify) {
  if (rows.length === 0) throw new ProofError("say of which keys");
  const claim = await readRows(file, table, rows);
  const proven = await verify(file, claim.entry);
  if (proven.index !== index) throw new ProofError(`it is for index ${proven.index}, not for ${index}`);
  const { index: last, main_index: main } = claim.latest;
  if (main > last || last > index) throw new ProofError("the map of tables states a leaf that comes after it");
  return { ...proven, tableUuid: claim.tableUuid, rows: claim.rows };
}
