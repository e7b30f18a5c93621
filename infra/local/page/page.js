// The page: tables, timeline, queries and search from the lake's API, and proofs that this browser verifies itself.

import { readEntries } from "./log.js";
import { ProofError, verifyProof } from "./proof.js";
import { verifyWitnessed } from "./policy.js";
import { offerRowProofs } from "./rows_form.js";

const SHOWN_LEAVES = 100;
const FRESH_MS = 60_000;
const POLL_MS = 1_000;
const $ = (id) => document.getElementById(id);

// The link's fragment selects what to show: #commit=42 (&tamper), #sql=…&as_of=…, #in=…&for=…
const linked = new URLSearchParams(location.hash.slice(1));

let session;
let lastIndex = -1;

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

async function request(path, { method = "GET", body, as = "json" } = {}) {
  const headers = { authorization: `Bearer ${session.token}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(session.endpoint + path, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail ?? problem.title ?? `${method} ${path} responded ${response.status}`);
  }
  if (as === "bytes") return new Uint8Array(await response.arrayBuffer());
  const text = await response.text();
  return as === "text" ? text : JSON.parse(text, reviveInteger);
}

/** Keeps integers beyond JavaScript's safe range, such as snapshot ids, as their source text. */
function reviveInteger(_, value, context) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value;
}

const many = (count, one, more = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : more}`;

// --- tables ---------------------------------------------------------------------------------------------------------

async function showTables() {
  const [{ tables }, summary] = await Promise.all([request("/tables?limit=1000"), request("/metrics-summary")]);
  const unmade = Object.entries(summary.quarantined ?? {}).filter(([name]) => !tables.includes(name));
  $("no-tables").hidden = tables.length + unmade.length > 0;
  const cards = await Promise.all(tables.map(async (name) => card(await request(`/tables/${name}`), summary.quarantined?.[name] ?? 0)));
  $("tables").replaceChildren(...cards, ...unmade.map(([name, count]) => unmadeCard(name, count)));
}

/** Files that were rejected before their table was created, which no other card would show. */
function unmadeCard(name, quarantined) {
  const item = element("li", undefined, { class: "card", "data-state": "failing" });
  item.append(
    element("h3", name),
    element("p", "was never created"),
    element("p", `${quarantined} in quarantine`, { class: "state" }),
  );
  return item;
}

function card(table, quarantined) {
  const age = table.committed_ms ? Date.now() - table.committed_ms : Infinity;
  const state = quarantined ? "failing" : age < FRESH_MS ? "fresh" : "quiet";
  const label = { failing: `${quarantined} in quarantine`, fresh: "fresh", quiet: table.committed_ms ? "quiet" : "empty" }[state];
  const item = element("li", undefined, { class: "card", "data-state": state });
  const name = element("h3");
  const button = element("button", table.name, { type: "button", title: "Show some of its rows" });
  button.addEventListener("click", () => showSome(table.name));
  name.append(button);
  item.append(
    name,
    element("p", `${many(table.rows, "row")} in ${many(table.files, "file")}, ${table.mode}`),
    element("p", `${label}${table.committed_ms ? `, written ${ago(age)}` : ""}`, { class: "state" }),
  );
  return item;
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
  const note = await request("/timeline/checkpoint", { as: "text" });
  const [origin, size, root] = note.split("\n");
  $("head").textContent = `${origin}: ${Number(size).toLocaleString()} leaves, root ${root.slice(0, 12)}…`;
  if (Number(size) - 1 === lastIndex) return;
  const first = Math.max(lastIndex + 1, Number(size) - SHOWN_LEAVES);
  const entries = await readEntries(first, Number(size), (path) => request(`/timeline/tile/${path}`, { as: "bytes" }));
  entries.forEach((entry, at) => showLeaf(first + at, entry));
  while ($("leaves").children.length > SHOWN_LEAVES) $("leaves").lastChild.remove();
  lastIndex = Number(size) - 1;
  await showTables();
}

/** Shows the leaf in an entry's bytes. */
function showLeaf(index, entry) {
  const leaf = { ...JSON.parse(new TextDecoder().decode(entry)), index, entry };
  $("leaves").prepend(leafRow(leaf));
  if (leaf.operation === "vectors") offerSearch(leaf.table.replace(/^vectors\//, ""));
}

function offerSearch(column) {
  const offered = [...$("searchable").options].map((option) => option.value);
  if (!offered.includes(column)) $("searchable").append(element("option", undefined, { value: column }));
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
  const file = await request(`/commits/${commit.index}/proof`, { as: "text" });
  $("entry").textContent = new TextDecoder().decode(commit.entry);
  $("file").textContent = file;
  $("facts").replaceChildren(
    ...["table", "operation", "snapshot_id", "sequence", "content_root", "changes_root", "metadata_sha256"]
      .filter((name) => commit[name] !== null && commit[name] !== undefined)
      .flatMap((name) => [element("dt", name.replaceAll("_", " ")), element("dd", commit[name], { class: "id" })]),
  );
  $("tamper").onchange = $("policy").onchange = () => check(commit, file);
  await check(commit, file);
  $("proof-title").focus();
}

/** Verifies in this browser: hashes the leaf, follows the inclusion path, compares with the root that the pinned key signed. */
async function check(commit, file) {
  const entry = commit.entry.slice();
  if ($("tamper").checked) entry[entry.length - 2] ^= 1;
  try {
    const began = performance.now();
    const policy = $("policy").value.trim();
    const proof = policy ? await verifyWitnessed(file, entry, await pinnedKey(), policy) : await verifyProof(file, entry, await pinnedKey());
    const ms = (performance.now() - began).toFixed(1);
    const witnessed = policy ? ` Cosigned by ${proof.witnesses.join(", ") || "nobody, and the policy demands nobody"}.` : "";
    verdict(true, `Proven by your browser in ${ms} ms: leaf ${proof.index} of ${proof.size}, ${proof.hashes} hashes, ${proof.bytes} bytes of proof.${witnessed}`);
  } catch (error) {
    if (!(error instanceof ProofError)) throw error;
    verdict(false, `Not proven: ${error.message}.`);
  }
}

function verdict(holds, text) {
  $("verdict").dataset.holds = String(holds);
  $("verdict").textContent = text;
}

/** Trust on first use: the first key is stored, so that proofs fail if the server later presents another. */
async function pinnedKey() {
  const item = `strandline-key:${session.endpoint}`;
  const current = (await request("/timeline/key", { as: "text" })).split("\n")[0];
  const pinned = localStorage.getItem(item) ?? current;
  localStorage.setItem(item, pinned);
  return pinned;
}

// --- queries --------------------------------------------------------------------------------------------------------

function showRows(container, rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of columns) head.append(element("th", name, { scope: "col" }));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of columns) line.insertCell().append(element("div", typeof row[name] === "object" && row[name] ? JSON.stringify(row[name]) : (row[name] ?? "")));
  }
  container.hidden = rows.length === 0;
  container.replaceChildren(table);
}

/** Runs `query` when the form is submitted, and shows its rows in `container` and its outcome in `status`. */
function onSubmit(form, status, container, query) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    status.classList.remove("problem");
    status.textContent = "running …";
    try {
      const began = performance.now();
      const { rows, note } = await query();
      showRows(container, rows);
      status.textContent = `${many(rows.length, "row")} in ${(performance.now() - began).toFixed(0)} ms${note ? `; ${note}` : ""}`;
    } catch (error) {
      container.hidden = true;
      status.classList.add("problem");
      status.textContent = error.message;
    }
  });
}

function routeTaken({ route, cached, bytes, index }) {
  const source = cached ? "the same was asked before" : `route: ${route}, ${many(bytes, "byte")} read`;
  return index === undefined ? source : `${source}; as of index ${index}`;
}

onSubmit($("sql"), $("route"), $("rows"), async () => {
  const result = await request("/query", { method: "POST", body: { sql: $("statement").value, as_of: $("as-of").value.trim() || undefined } });
  return { rows: result.rows ?? [], note: routeTaken(result.receipt) };
});
onSubmit($("search"), $("found"), $("hits"), async () => {
  const [column, ...table] = $("where").value.trim().split(".").reverse();
  const result = await request("/search", { method: "POST", body: { table: table.reverse().join("."), column, text: $("words").value } });
  const rows = (result.rows ?? []).map(({ score, source_snapshot, ...row }) => ({ score: score.toFixed(3), ...row }));
  return { rows, note: rows.length ? `of snapshot ${result.rows[0].source_snapshot}` : "" };
});
offerRowProofs({ element: $, pinnedKey, policy: () => $("policy").value.trim(), showRows });
$("statement").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("sql").requestSubmit();
});

// --- start ----------------------------------------------------------------------------------------------------------

async function watch() {
  try {
    await showHead();
  } catch (error) {
    $("head").textContent = `the lake does not respond (${error.message}); retrying`;
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
