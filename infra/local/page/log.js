// Reads the log as any stranger would: entries from its tiles (c2sp.org/tlog-tiles), 256 to a request.

const WIDTH = 256;

/** `1234067` -> `x001/x234/067`: how a tile's number stands in its path. */
export function tilePath(number) {
  const groups = [];
  for (let rest = number; groups.length === 0 || rest > 0; rest = Math.floor(rest / 1000)) groups.unshift(String(rest % 1000).padStart(3, "0"));
  return groups.map((group, at) => (at < groups.length - 1 ? `x${group}` : group)).join("/");
}

/** The entries of a bundle: each is two bytes of length, most significant first, and the bytes themselves. */
export function readBundle(bytes) {
  const entries = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 2 + bytes[at] * 256 + bytes[at + 1];
    if (!(end <= bytes.length)) throw new Error("the bundle of entries is cut off");
    entries.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return entries;
}

/** Entries `first` to `size - 1` of a log of `size`, in order. `fetchTile(path)` gives bytes, and throws where there are none. */
export async function readEntries(first, size, fetchTile) {
  const tiles = [];
  for (let number = Math.floor(first / WIDTH); number * WIDTH < size; number++) tiles.push(number);
  const bundles = await Promise.all(tiles.map((number) => readTile(number, Math.min(WIDTH, size - number * WIDTH), fetchTile)));
  return bundles.flat().slice(first - (tiles[0] ?? 0) * WIDTH);
}

/** A part of a tile may be gone once the whole one is there. */
async function readTile(number, width, fetchTile) {
  const whole = `entries/${tilePath(number)}`;
  const bytes = width === WIDTH ? await fetchTile(whole) : await fetchTile(`${whole}.p/${width}`).catch(() => fetchTile(whole));
  const entries = readBundle(bytes);
  if (entries.length < width) throw new Error(`tile ${number} has ${entries.length} entries where the log has ${width}`);
  return entries.slice(0, width);
}
