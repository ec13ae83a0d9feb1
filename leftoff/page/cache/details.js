/** The node that is chosen: its text, what its path costs, and what can be done with it. */

import { age, count, size } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { oneLine } from "./drawing.js";
import { change } from "./feed.js";
import { pathOf } from "./layout.js";

/** @import {TreeNode} from "./feed.js" */

/** @param {{nodes: TreeNode[], node: TreeNode}} props */
export function Details({ nodes, node }) {
  const [news, setNews] = useState("");
  const isPinned = node.points.some((point) => point.is_pinned);
  const path = pathOf(nodes, node);
  const run = async (
    /** @type {"POST" | "DELETE"} */ method,
    /** @type {string} */ target,
    /** @type {(answer: any) => string} */ tell,
  ) => {
    try {
      setNews(tell(await change(method, target)));
    } catch (error) {
      setNews(/** @type {Error} */ (error).message);
    }
  };
  const drop = () =>
    confirm(`Drop tokens ${count(node.start)} to ${count(node.end)} and all that follows them?`) &&
    run("DELETE", node.id, ({ freed_bytes }) => `${size(freed_bytes)} were freed.`);
  return html`
    <section class="panel details" aria-label="The chosen stretch">
      <p class="words">${oneLine(node.text)}${node.end - node.start > 48 ? "…" : ""}</p>
      <table>
        <thead><tr><td></td><th scope="col">tokens</th><th scope="col">RAM</th><th scope="col">disk</th><th scope="col">store</th></tr></thead>
        <tbody>
          <${Row} label="this stretch" path=${[node]} />
          <${Row} label="whole path" path=${path} />
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

/** @param {{label: string, path: TreeNode[]}} props */
function Row({ label, path }) {
  const sum = (/** @type {(node: TreeNode) => number} */ of) => path.reduce((total, node) => total + of(node), 0);
  return html`<tr><th scope="row">${label}</th>
    <td>${count(sum((node) => node.end - node.start))}</td>
    <td>${size(sum((node) => node.ram_bytes))}</td>
    <td>${size(sum((node) => node.disk_bytes))}</td>
    <td>${size(sum((node) => node.store_bytes))}</td></tr>`;
}
