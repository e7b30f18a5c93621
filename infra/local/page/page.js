// The page: what the lake's own API says, and proofs that this browser checks by itself.

import { readEntries } from "./log.js";
import { ProofError, verifyProof } from "./proof.js";

const SHOWN_LEAVES = 100;
const FRESH_MS = 60_000;
const POLL_MS = 1_000;
const $ = (id) => document.getElementById(id);

// A link may name what to show: #commit=42 (&tamper), #sql=…&as_of=…, #in=…&for=…
const linked = new URLSearchParams(location.hash.slice(1));

let session;
let known = -1;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

async function ask(path, { method = "GET", body, as = "json" } = {}) {
  const headers = { authorization: `Bearer ${session.token}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(session.endpoint + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.detail ?? problem.title ?? `${method} ${path} was answered with ${answer.status}`);
  }
  if (as === "bytes") return new Uint8Array(await answer.arrayBuffer());
  const text = await answer.text();
  return as === "text" ? text : JSON.parse(text, exactly);
}

/** Whole numbers that JavaScript cannot hold, such as snapshots' ids, stay as they were written. */
function exactly(_, value, context) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value;
}

const many = (count, one, more = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : more}`;

// --- tables ---------------------------------------------------------------------------------------------------------

async function showTables() {
  const [{ tables }, summary] = await Promise.all([ask("/tables?limit=1000"), ask("/metrics-summary")]);
  $("no-tables").hidden = tables.length > 0;
  const cards = await Promise.all(tables.map(async (name) => card(await ask(`/tables/${name}`), summary.quarantined?.[name] ?? 0)));
  $("tables").replaceChildren(...cards);
}

function card(table, quarantined) {
  const age = table.committed_ms ? Date.now() - table.committed_ms : Infinity;
  const state = quarantined ? "failing" : age < FRESH_MS ? "fresh" : "quiet";
  const said = { failing: `${quarantined} in quarantine`, fresh: "fresh", quiet: table.committed_ms ? "quiet" : "empty" }[state];
  const made = element("li", undefined, { class: "card", "data-state": state });
  const name = element("h3");
  const button = element("button", table.name, { type: "button", title: "Show some of its rows" });
  button.addEventListener("click", () => showSome(table.name));
  name.append(button);
  made.append(
    name,
    element("p", `${many(table.rows, "row")} in ${many(table.files, "file")}, ${table.mode}`),
    element("p", `${said}${table.committed_ms ? `, written ${ago(age)}` : ""}`, { class: "state" }),
  );
  return made;
}

function showSome(table) {
  $("statement").value = `select * from ${table} limit 10`;
  $("as-of").value = "";
  $("sql").requestSubmit();
  $("sql-title").scrollIntoView();
  $("statement").focus({ preventScroll: true });
}

function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
}

// --- timeline -------------------------------------------------------------------------------------------------------

async function showHead() {
  const note = await ask("/timeline/checkpoint", { as: "text" });
  const [origin, size, root] = note.split("\n");
  $("head").textContent = `${origin}: ${Number(size).toLocaleString()} leaves, root ${root.slice(0, 12)}…`;
  if (Number(size) - 1 === known) return;
  const first = Math.max(known + 1, Number(size) - SHOWN_LEAVES);
  const entries = await readEntries(first, Number(size), (path) => ask(`/timeline/tile/${path}`, { as: "bytes" }));
  entries.forEach((entry, at) => showLeaf(first + at, entry));
  while ($("leaves").children.length > SHOWN_LEAVES) $("leaves").lastChild.remove();
  known = Number(size) - 1;
  await showTables();
}

/** A leaf's bytes, as they are in the log, and what they say. */
function showLeaf(index, entry) {
  const leaf = { ...JSON.parse(new TextDecoder().decode(entry)), index, entry };
  $("leaves").prepend(leafRow(leaf));
  if (leaf.operation === "vectors") offerSearch(leaf.table.replace(/^vectors\//, ""));
}

function offerSearch(column) {
  const known = [...$("searchable").options].map((option) => option.value);
  if (!known.includes(column)) $("searchable").append(element("option", undefined, { value: column }));
  $("where").value ||= column;
}

function leafRow(commit) {
  const button = element("button", undefined, { type: "button", "aria-pressed": "false" });
  const time = new Date(commit.sequenced_ms).toLocaleTimeString();
  button.append(element("span", `#${commit.index}`, { class: "id" }), element("span", commit.operation), element("span", commit.table), element("span", time));
  button.addEventListener("click", () => showProof(commit, button));
  const row = element("li", undefined, { class: "new" });
  row.append(button);
  if (linked.get("commit") === String(commit.index)) {
    linked.delete("commit");
    showProof(commit, button);
  }
  return row;
}

async function showProof(commit, button) {
  for (const other of $("leaves").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
  history.replaceState(null, "", `#commit=${commit.index}`);
  $("proof").hidden = false;
  $("proof-title").textContent = `Commit ${commit.index}: ${commit.operation} of ${commit.table}`;
  const file = await ask(`/commits/${commit.index}/proof`, { as: "text" });
  $("entry").textContent = new TextDecoder().decode(commit.entry);
  $("file").textContent = file;
  $("facts").replaceChildren(
    ...["table", "operation", "snapshot_id", "sequence", "content_root", "changes_root", "metadata_sha256"]
      .filter((name) => commit[name] !== null && commit[name] !== undefined)
      .flatMap((name) => [element("dt", name.replaceAll("_", " ")), element("dd", commit[name], { class: "id" })]),
  );
  $("tamper").onchange = () => check(commit, file);
  await check(commit, file);
  $("proof-title").focus();
}

/** In this browser: hash the leaf, follow the path, compare with the root that the pinned key signed. */
async function check(commit, file) {
  const entry = commit.entry.slice();
  if ($("tamper").checked) entry[entry.length - 2] ^= 1;
  try {
    const began = performance.now();
    const found = await verifyProof(file, entry, await pinnedKey());
    const ms = (performance.now() - began).toFixed(1);
    verdict(true, `Proven by your browser in ${ms} ms: leaf ${found.index} of ${found.size}, ${found.hashes} hashes, ${found.bytes} bytes of proof.`);
  } catch (error) {
    if (!(error instanceof ProofError)) throw error;
    verdict(false, `Not proven: ${error.message}.`);
  }
}

function verdict(holds, text) {
  $("verdict").dataset.holds = String(holds);
  $("verdict").textContent = text;
}

/** The key seen first is the one believed from then on: a server that shows another later is found out. */
async function pinnedKey() {
  const place = `strandline-key:${session.endpoint}`;
  const shown = (await ask("/timeline/key", { as: "text" })).split("\n")[0];
  const pinned = localStorage.getItem(place) ?? shown;
  localStorage.setItem(place, pinned);
  return pinned;
}

// --- questions ------------------------------------------------------------------------------------------------------

function showRows(place, rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of columns) head.append(element("th", name, { scope: "col" }));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of columns) line.insertCell().append(element("div", typeof row[name] === "object" && row[name] ? JSON.stringify(row[name]) : (row[name] ?? "")));
  }
  place.hidden = rows.length === 0;
  place.replaceChildren(table);
}

function answers(form, status, place, question) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    status.classList.remove("problem");
    status.textContent = "asking …";
    try {
      const began = performance.now();
      const { rows, said } = await question();
      showRows(place, rows);
      status.textContent = `${many(rows.length, "row")} in ${(performance.now() - began).toFixed(0)} ms${said ? `; ${said}` : ""}`;
    } catch (error) {
      place.hidden = true;
      status.classList.add("problem");
      status.textContent = error.message;
    }
  });
}

function routeTaken({ route, cached, bytes, index }) {
  const read = cached ? "the same was asked before" : `route: ${route}, ${many(bytes, "byte")} read`;
  return index === undefined ? read : `${read}; as of index ${index}`;
}

answers($("sql"), $("route"), $("rows"), async () => {
  const found = await ask("/query", { method: "POST", body: { sql: $("statement").value, as_of: $("as-of").value.trim() || undefined } });
  return { rows: found.rows ?? [], said: routeTaken(found.receipt) };
});
answers($("search"), $("found"), $("hits"), async () => {
  const [column, ...table] = $("where").value.trim().split(".").reverse();
  const found = await ask("/search", { method: "POST", body: { table: table.reverse().join("."), column, text: $("words").value } });
  const rows = (found.rows ?? []).map(({ score, source_snapshot, ...row }) => ({ score: score.toFixed(3), ...row }));
  return { rows, said: rows.length ? `of snapshot ${found.rows[0].source_snapshot}` : "" };
});
$("statement").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("sql").requestSubmit();
});

// --- start ----------------------------------------------------------------------------------------------------------

async function watch() {
  try {
    await showHead();
  } catch (error) {
    $("head").textContent = `the lake does not answer (${error.message}); trying again`;
  }
  setTimeout(watch, POLL_MS);
}

session = await (await fetch("/_page/session")).json();
$("tamper").checked = linked.has("tamper");
for (const [id, name] of [["statement", "sql"], ["as-of", "as_of"], ["where", "in"], ["words", "for"]]) $(id).value = linked.get(name) ?? "";
await watch();
if (linked.has("sql")) $("sql").requestSubmit();
if (linked.has("in")) $("search").requestSubmit();
setInterval(() => showTables().catch(() => {}), 10 * POLL_MS);
