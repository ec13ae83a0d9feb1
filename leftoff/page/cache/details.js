/** The node that is chosen: its text, what its path costs, and what can be done with it. */

import { age, count, size } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { problemWith } from "../shared/http.js";
import { isSure } from "../shared/sure.js";
import { oneLine } from "./drawing.js";
import { change } from "./feed.js";
import { pathOf } from "./layout.js";

/** @import {Tree, TreeNode} from "./feed.js" */

const TIERS = /** @type {const} */ ([
  { name: "RAM", key: "ram_bytes" },
  { name: "disk", key: "disk_bytes" },
  { name: "store", key: "store_bytes" },
]);

/** @param {{tree: Tree, node: TreeNode}} props */
export function Details({ tree, node }) {
  const [news, setNews] = useState("");
  const isPinned = node.points.some((point) => point.is_pinned);
  const path = pathOf(tree.nodes, node);
  const tiers = TIERS.filter(({ key }) => path.some((each) => each[key] > 0));
  const run = async (
    /** @type {"POST" | "DELETE"} */ method,
    /** @type {string} */ target,
    /** @type {(answer: any) => string} */ tell,
  ) => {
    try {
      setNews(tell(await change(method, target, tree.model)));
    } catch (error) {
      setNews(problemWith(error));
    }
  };
  const drop = async () =>
    (await isSure(`Drop tokens ${count(node.start)} to ${count(node.end)} and all that follows them?`, "Drop")) &&
    run("DELETE", node.id, ({ freed_bytes }) => `${size(freed_bytes)} were freed.`);
  return html`
    <section class="details" aria-label="The chosen stretch">
      <p class="words">${oneLine(node.lead + node.text)}${node.end - node.start > 48 ? "…" : ""}</p>
      <table>
        <thead><tr><td></td><th scope="col">tokens</th>${tiers.map(({ name }) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>
          <${Row} label="this stretch" path=${[node]} tiers=${tiers} />
          <${Row} label="whole path" path=${path} tiers=${tiers} />
        </tbody>
      </table>
      <p class="quiet">
        tokens ${count(node.start)} to ${count(node.end)}${node.slots.length > 0 && ` · in slot ${node.slots.join(", ")}`} ·
        used ${age(node.age_s)}${node.points.length > 0 && ` · ${count(node.points.length)} snapshots, ${count(hits(node))} hits`}
      </p>
      <span class="row">
        <button type="button" aria-pressed=${isPinned}
          onClick=${() => run(isPinned ? "DELETE" : "POST", `${node.id}/pin`, ({ tokens }) => (isPinned ? "No longer pinned." : `${count(tokens)} tokens are pinned.`))}>
          ${isPinned ? "Unpin" : "Pin"}</button>
        <button type="button" onClick=${drop}>Drop</button>
        <span class="quiet" role="status">${news}</span>
      </span>
    </section>`;
}

/** @param {TreeNode} node */
const hits = (node) => node.points.reduce((sum, point) => sum + point.hits, 0);

/** @param {{label: string, path: TreeNode[], tiers: typeof TIERS[number][]}} props */
function Row({ label, path, tiers }) {
  const sum = (/** @type {(node: TreeNode) => number} */ of) => path.reduce((total, node) => total + of(node), 0);
  return html`<tr><th scope="row">${label}</th>
    <td>${count(sum((node) => node.end - node.start))}</td>
    ${tiers.map(({ key }) => html`<td>${size(sum((node) => node[key]))}</td>`)}</tr>`;
}
