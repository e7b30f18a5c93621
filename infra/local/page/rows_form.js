// The form that checks a file of `strandline prove row` or `prove answer` in this browser.

import { ProofError, verifyProof } from "./proof.js";
import { verifyWitnessed } from "./policy.js";
import { verifyRows } from "./rows.js";

/** One key for each line, form-encoded: `id=4711`, `region=DE&id=7`. */
function parseKeys(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const columns = [...new URLSearchParams(line)];
    const row = Object.fromEntries(columns);
    if (!line.includes("=") || Object.keys(row).length !== columns.length) throw new ProofError(`${line} is not a key: write it as id=4711`);
    return row;
  });
}

/** `pinnedKey`: the log's key that this browser trusts; `policy`: the text of a trust policy, or nothing. */
export function offerRowProofs({ element, pinnedKey, policy, showRows }) {
  const [form, verdict, container] = [element("row-proof"), element("row-verdict"), element("row-rows")];
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    container.hidden = true;
    try {
      const index = element("row-index").value.trim();
      if (!/^(0|[1-9][0-9]{0,15})$/.test(index)) throw new ProofError("say at which index of the timeline, such as 42");
      const asked = { table: element("row-table").value.trim(), rows: parseKeys(element("row-keys").value), index: Number(index) };
      const [file, key, trusted] = [await element("row-file").files[0].text(), await pinnedKey(), policy()];
      const verify = (text, entry) => (trusted ? verifyWitnessed(text, entry, key, trusted) : verifyProof(text, entry, key));
      const proven = await verifyRows(file, asked, verify);
      const rows = proven.rows.filter((row) => row.exists).map(({ exists, ...row }) => row);
      showRows(container, rows);
      const had = rows.length === 0 ? "no row" : rows.length === 1 ? "1 row" : `${rows.length} rows`;
      const keys = asked.rows.length === 1 ? "this key" : `these ${asked.rows.length} keys, and no other of them`;
      verdict.dataset.holds = "true";
      verdict.textContent = `Proven by your browser: ${asked.table} had ${had} of ${keys} at index ${proven.index}. ${file.length.toLocaleString()} bytes of proof.`;
    } catch (error) {
      if (!(error instanceof ProofError)) throw error;
      verdict.dataset.holds = "false";
      verdict.textContent = `Not proven: ${error.message}.`;
    }
  });
}
