// Reads entries from the published tiles (c2sp.org/tlog-tiles), 256 per request.

const WIDTH = 256;

/** A tile's number in its path: `1234067` -> `x001/x234/067`. */
export function tilePath(number) {
  const groups = [];
  for (let rest = number; groups.length === 0 || rest > 0; rest = Math.floor(rest / 1000)) groups.unshift(String(rest % 1000).padStart(3, "0"));
  return groups.map((group, at) => (at < groups.length - 1 ? `x${group}` : group)).join("/");
}

/** The entries of an entry bundle: each is a big-endian uint16 length and its bytes. */
export function readBundle(bytes) {
  const entries = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 2 + bytes[at] * 256 + bytes[at + 1];
    if (!(end <= bytes.length)) throw new Error("the entry bundle is truncated");
    entries.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return entries;
}

/** Entries `first` to `size - 1` of a log of `size`, in order. `fetchTile(path)` returns bytes, and throws for a missing tile. */
export async function readEntries(first, size, fetchTile) {
  const tiles = [];
  for (let number = Math.floor(first / WIDTH); number * WIDTH < size; number++) tiles.push(number);
  const bundles = await Promise.all(tiles.map((number) => readTile(number, Math.min(WIDTH, size - number * WIDTH), fetchTile)));
  return bundles.flat().slice(first - (tiles[0] ?? 0) * WIDTH);
}

/** Falls back to the full tile: a partial tile may be deleted once the full one exists. */
async function readTile(number, width, fetchTile) {
  const full = `entries/${tilePath(number)}`;
  const bytes = width === WIDTH ? await fetchTile(full) : await fetchTile(`${full}.p/${width}`).catch(() => fetchTile(full));
  const entries = readBundle(bytes);
  if (entries.length < width) throw new Error(`tile ${number} has ${entries.length} entries where the log has ${width}`);
  return entries.slice(0, width);
}
