/** The cache, live. */

import { Legend } from "../shared/bar.js";
import { useCell } from "../shared/cell.js";
import { counted } from "../shared/format.js";
import { html, useEffect, useState } from "../shared/html.js";
import { Details } from "./details.js";
import { Drawing } from "./drawing.js";
import { follow, reports, silence, state, trees, wanted } from "./feed.js";
import { Gauges } from "./gauges.js";
import { Requests } from "./requests.js";

/** @import {Tree} from "./feed.js" */

const TIERS = ["live", "ram", "disk", "store"];
const MOST_ZOOM = 64;
const SEARCH_PAUSE_MS = 200;

export function CacheView() {
  useEffect(follow, []);
  const now = useCell(state);
  const problem = useCell(silence);
  const forest = useCell(trees);
  const last = useCell(reports);
  return html`
    <div class="view cache">
      <h1 class="unseen">The cache</h1>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${now ? html`<${Gauges} state=${now} />` : html`<div class="gauges waiting"></div>`}
      <${Forest} trees=${forest} />
      <${Requests} reports=${last} />
    </div>`;
}

/** @param {{trees: Tree[]}} props */
function Forest({ trees: forest }) {
  const [zoom, setZoom] = useState(1);
  const [chosen, choose] = useState(/** @type {string | null} */ (null));
  const zoomBy = (/** @type {number} */ factor) =>
    setZoom((before) => Math.min(MOST_ZOOM, Math.max(1, before * factor)));
  const onWheel = (/** @type {WheelEvent} */ event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
  };
  const query = useCell(wanted);
  const nodes = forest.flatMap((tree) => tree.nodes);
  const node = nodes.find((each) => each.id === chosen);
  const found = nodes.filter((each) => each.is_found).length;
  return html`
    <section class="panel forest" aria-labelledby="tree-title" onWheel=${onWheel}>
      <header class="row">
        <h2 id="tree-title">Prefixes</h2>
        <${Legend} names=${TIERS} />
        <span class="grow"></span>
        <${Search} />
        <span class="quiet" role="status">${query && `found in ${counted(found, "place")}`}</span>
        <span class="row">
          <button type="button" aria-label="Zoom out" disabled=${zoom === 1} onClick=${() => zoomBy(0.5)}>−</button>
          <button type="button" aria-label="Zoom in" disabled=${zoom === MOST_ZOOM} onClick=${() => zoomBy(2)}>+</button>
        </span>
      </header>
      ${nodes.length === 0 && html`<p class="quiet">The cache is empty: it fills with the first request.</p>`}
      ${forest.map(
        (tree) => html`
        ${forest.length > 1 && html`<h3 class="quiet">${tree.namespace || "without a salt"}</h3>`}
        <${Drawing} key=${tree.namespace} nodes=${tree.nodes} zoom=${zoom} chosen=${chosen} choose=${choose} />
        ${!tree.is_whole && html`<p class="quiet">The 1,000 stretches that were used last; there are more.</p>`}`,
      )}
      ${node && html`<${Details} key=${node.id} nodes=${nodes} node=${node} />`}
    </section>`;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

function Search() {
  const onInput = (/** @type {{target: HTMLInputElement}} */ { target }) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      wanted.value = target.value.trim();
    }, SEARCH_PAUSE_MS);
  };
  return html`<input type="search" aria-label="Search the cache by text" placeholder="Search by text" defaultValue=${wanted.value} onInput=${onInput} />`;
}
