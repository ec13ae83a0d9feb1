/** The cache, live. */

import { Legend } from "../shared/bar.js";
import { useCell } from "../shared/cell.js";
import { count, counted, size } from "../shared/format.js";
import { html, useEffect, useRef, useState } from "../shared/html.js";
import { models, useModels } from "../shared/models.js";
import { Problem } from "../shared/server.js";
import { Clients } from "./clients.js";
import { Details } from "./details.js";
import { Drawing } from "./drawing.js";
import { clients, follow, reports, silence, state, trees, wanted } from "./feed.js";
import { Gauges } from "./gauges.js";
import { Requests } from "./requests.js";

/** @import {Tree} from "./feed.js" */

const TIERS = ["live", "ram", "disk", "store"];
const MAX_ZOOM = 64;
const MAX_TREES = 20;
const SEARCH_PAUSE_MS = 200;

export function CacheView() {
  useEffect(follow, []);
  const now = useCell(state);
  const problem = useCell(silence);
  const forest = useCell(trees);
  const last = useCell(reports);
  const callers = useCell(clients);
  useModels();
  return html`
    <div class="view cache">
      <h1 class="unseen">The cache</h1>
      <${Problem} text=${problem} />
      ${now ? html`<${Gauges} state=${now} />` : html`<div class="gauges waiting"></div>`}
      <${Clients} clients=${callers} />
      <${Forest} trees=${forest} isSilent=${Boolean(problem)} />
      <${Requests} reports=${last} />
    </div>`;
}

/** @typedef {{bed: string, id: string}} Chosen a node, and its tree: models may have read the same */

/** @param {Tree} tree */
const bedOf = ({ model, namespace }) => `${model} ${namespace}`;

/** @param {{trees: Tree[] | null, isSilent: boolean}} props */
function Forest({ trees: forest, isSilent }) {
  const [zoom, setZoom] = useState(1);
  const [chosen, choose] = useState(/** @type {Chosen | null} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const zoomBy = (/** @type {number} */ factor) =>
    setZoom((before) => Math.min(MAX_ZOOM, Math.max(1, before * factor)));
  const onWheel = (/** @type {WheelEvent} */ event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
  };
  const query = useCell(wanted);
  const nodes = forest?.flatMap((tree) => tree.nodes) ?? [];
  const tree = forest?.find((each) => bedOf(each) === chosen?.bed);
  const node = tree?.nodes.find((each) => each.id === chosen?.id);
  const found = nodes.filter((each) => each.is_found).length;
  const byModel = Map.groupBy(forest ?? [], (each) => each.model ?? "");
  useEffect(() => box.current?.querySelector(".found")?.scrollIntoView({ block: "nearest" }), [query, found]);
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
          <button type="button" aria-label="Zoom in" disabled=${zoom === MAX_ZOOM} onClick=${() => zoomBy(2)}>+</button>
        </span>
      </header>
      ${nodes.length === 0 && !isSilent && html`<p class="quiet">${forest ? "The cache is empty: it fills with the first request." : "Reading…"}</p>`}
      <div class="beds" hidden=${nodes.length === 0}>
        <div class="drawings" ref=${box}>
          ${[...byModel].map(
            ([model, own]) => html`
            ${model && html`<${ModelTitle} key=${model} model=${model} trees=${own} />`}
            <${Trees} key=${`${model} trees`} trees=${own} zoom=${zoom} chosen=${chosen} choose=${choose} />`,
          )}
        </div>
        ${node && tree ? html`<${Details} key=${`${bedOf(tree)} ${node.id}`} tree=${tree} node=${node} />` : html`<p class="details quiet">Choose a stretch to see its text and what it takes.</p>`}
      </div>
    </section>`;
}

/** @param {{trees: Tree[], zoom: number, chosen: Chosen | null, choose: (chosen: Chosen) => void}} props of one model */
function Trees({ trees: own, zoom, chosen, choose }) {
  return html`
    ${own.slice(0, MAX_TREES).map((tree) => {
      const bed = bedOf(tree);
      return html`
        ${own.length > 1 && html`<h3 class="quiet">${tree.namespace || "without a salt"}</h3>`}
        <${Drawing} key=${bed} nodes=${tree.nodes} zoom=${zoom} chosen=${chosen?.bed === bed ? chosen.id : null}
          choose=${(/** @type {string} */ id) => choose({ bed, id })} />
        ${!tree.is_whole && html`<p class="quiet">The 1,000 stretches that were used last; there are more.</p>`}`;
    })}
    ${own.length > MAX_TREES && html`<p class="quiet">and ${count(own.length - MAX_TREES)} more, under other salts</p>`}`;
}

/** @param {{model: string, trees: Tree[]}} props what a model holds in all, above its trees */
function ModelTitle({ model, trees: own }) {
  const status = useCell(models).find(({ id }) => id === model)?.status.value;
  const tiers = useCell(state)?.models?.[model]?.tiers ?? [];
  const nodes = own.flatMap((tree) => tree.nodes);
  const tokens = nodes.reduce((sum, node) => sum + node.end - node.start, 0);
  const parents = new Set(nodes.map((node) => node.parent));
  const parts = [
    status,
    counted(nodes.filter((node) => !parents.has(node.id)).length, "conversation"),
    counted(tokens, "token"),
    ...tiers.map((tier) => `${size(tier.used_bytes)} ${tier.name === "RAM" ? "in RAM" : `on ${tier.name}`}`),
  ];
  return html`<h3 class="model-title">${model} <span class="quiet">${parts.filter(Boolean).join(" · ")}</span></h3>`;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

function Search() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const query = useCell(wanted);
  useEffect(() => {
    // another part of the view has asked; what is being typed is left alone
    if (field.current && field.current !== document.activeElement) field.current.value = query;
  }, [query]);
  const onInput = (/** @type {{target: HTMLInputElement}} */ { target }) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      wanted.value = target.value.trim();
    }, SEARCH_PAUSE_MS);
  };
  return html`<input type="search" ref=${field} aria-label="Search the cache by text" placeholder="Search by text" onInput=${onInput} />`;
}
