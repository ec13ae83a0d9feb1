/** The tree as a drawing: width by tokens, colour by tier, snapshots as ticks, and paler the longer it was not used. */

import { count, counted, size } from "../shared/format.js";
import { html, useEffect, useMemo, useRef, useState } from "../shared/html.js";
import { neighbour, placed, startOf } from "./layout.js";

/** @import {TreeNode} from "./feed.js" */
/** @import {Fold, Placed} from "./layout.js" */

const ROW_PX = 30;
const LABEL_PX = 260; // kept free at the right, for the words of short stretches
const MIN_PX = 48; // words in less cannot be read
const PALEST = 0.35;
const ARROWS = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"];

/** @param {{nodes: TreeNode[], zoom: number, chosen: string | null, choose: (id: string) => void}} props */
export function Drawing({ nodes, zoom, chosen, choose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(box);
  const [unfolded, setUnfolded] = useState(/** @type {Set<string | null>} */ (new Set()));
  const all = useMemo(() => placed(nodes, unfolded), [nodes, unfolded]);
  const longest = Math.max(1, ...nodes.map((node) => node.end));
  const labels = Math.min(LABEL_PX, width / 2);
  const scale = (zoom * Math.max(100, width - labels)) / longest; // pixels per token
  const rows = 1 + Math.max(0, ...all.map((each) => each.row));
  const current = all.some((each) => each.id === chosen) ? chosen : all[0]?.id;
  const toggle = (/** @type {Fold} */ { parent, isOpen }) =>
    setUnfolded((before) => new Set(isOpen ? [...before].filter((each) => each !== parent) : [...before, parent]));
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const { node: focused } = /** @type {HTMLElement} */ (event.target).dataset;
    const fold = all.find((each) => each.id === focused)?.fold;
    const isToggle = fold && (event.key === "Enter" || event.key === " ");
    if (!focused || !(isToggle || ARROWS.includes(event.key))) return;
    event.preventDefault();
    if (isToggle) toggle(fold);
    const next = neighbour(all, focused, event.key);
    if (!next || isToggle) return;
    choose(next);
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(`[data-node="${next}"]`))?.focus();
  };
  const common = (/** @type {Placed} */ each) => ({
    key: each.id,
    placed: each,
    scale,
    room: labels,
    right: width,
    isChosen: each.id === chosen,
    isReached: each.id === current,
    choose,
  });
  return html`
    <div class="drawing" ref=${box}>
      <div role="tree" aria-label="Prefixes in the cache" onKeyDown=${onKeyDown}
        style=${{ width: `${scale * longest}px`, height: `${rows * ROW_PX}px`, marginRight: `${labels}px` }}>
        ${all.map((each) => (each.node ? html`<${NodeView} ...${common(each)} />` : html`<${FoldView} ...${common(each)} toggle=${toggle} />`))}
      </div>
    </div>`;
}

/** @typedef {{placed: Placed, scale: number, room: number, right: number, isChosen: boolean, isReached: boolean, choose: (id: string) => void}} Shown */

/** @param {{placed: Placed, scale: number}} props the line from a branch to where it parts */
function Elbow({ placed, scale }) {
  const { row, parentRow } = placed;
  if (parentRow < 0 || parentRow === row) return null;
  const [top, height] = [parentRow * ROW_PX + 4, (row - parentRow) * ROW_PX + 4];
  return html`<span class="elbow" aria-hidden="true" style=${{ left: `${startOf(placed) * scale}px`, top: `${top}px`, height: `${height}px` }}></span>`;
}

/** @param {Shown & {toggle: (fold: Fold) => void}} props */
function FoldView({ placed, scale, isReached, choose, toggle }) {
  const fold = /** @type {Fold} */ (placed.fold);
  const folded = `${count(fold.num)} more, small and used earlier · ${counted(fold.tokens, "token")}`;
  return html`
    <${Elbow} placed=${placed} scale=${scale} />
    <div role="treeitem" class="fold" data-node=${placed.id} tabindex=${isReached ? 0 : -1} aria-level=${placed.level}
      aria-expanded=${fold.isOpen} onClick=${() => toggle(fold)} onFocus=${() => choose(placed.id)}
      style=${{ left: `${fold.start * scale}px`, top: `${placed.row * ROW_PX}px` }}>
      ${fold.isOpen ? "▾ Show fewer" : `▸ ${folded}${fold.found ? ` · found in ${count(fold.found)}` : ""}`}
    </div>`;
}

/** @param {Shown} props */
function NodeView({ placed, scale, room, right, isChosen, isReached, choose }) {
  const node = /** @type {TreeNode} */ (placed.node);
  const [left, top] = [node.start * scale, placed.row * ROW_PX];
  const width = Math.max(1, (node.end - node.start) * scale - 1);
  const isBeside = placed.isLast && width < LABEL_PX / 2;
  const words = html`<span class="words" aria-hidden="true"><span class="lead">${oneLine(node.lead)}</span>${wordsOf(node)}</span>`;
  const classes = ["node", isChosen ? "chosen" : "", node.is_found ? "found" : ""].join(" ");
  return html`
    <${Elbow} placed=${placed} scale=${scale} />
    <div role="treeitem" class=${classes} data-node=${node.id} tabindex=${isReached ? 0 : -1} aria-level=${placed.level}
      aria-selected=${isChosen} onClick=${() => choose(node.id)} onFocus=${() => choose(node.id)} title=${oneLine(node.lead + node.text)}
      style=${{ left: `${left}px`, top: `${top}px`, width: `${width}px` }}>
      <span class="strip ${tierOf(node)}" style=${{ opacity: freshness(node.age_s) }}></span>
      ${node.disk_bytes > 0 && tierOf(node) !== "disk" && html`<span class="under disk" style=${{ opacity: freshness(node.age_s) }}></span>`}
      ${node.points.map(
        (point) => html`<span class="tick ${point.is_pinned ? "pinned" : ""}" key=${`${point.tier}${point.position}`}
        style=${{ left: `${(point.position - node.start) * scale - 1}px` }}></span>`,
      )}
      ${!isBeside && width > MIN_PX && words}
      <span class="unseen">${oneLine(node.lead + node.text)}${places(node)}</span>
    </div>
    ${
      isBeside &&
      html`<span class="beside" aria-hidden="true" onClick=${() => choose(node.id)}
      style=${{ left: `${left + width + 6}px`, top: `${top}px`, width: `${Math.max(room - 12, right - left - width - 12)}px` }}>${words}</span>`
    }`;
}

/** @param {TreeNode} node the fastest place that holds any of it */
function tierOf(node) {
  if (node.slots.length) return "live";
  if (node.ram_bytes) return "ram";
  if (node.disk_bytes) return "disk";
  return node.store_bytes ? "store" : "none";
}

/** @param {number} seconds */
const freshness = (seconds) => Math.max(PALEST, 1 - 0.13 * Math.log10(1 + seconds));

/** @param {string} text template marks are noise here, unless there is nothing else */
export const oneLine = (text) => squeezed(text.replace(/<\|[^|>]*\|>/g, " ")) || squeezed(text);

/** @param {TreeNode} node whose first word may end one that its lead begins */
const wordsOf = ({ lead, text }) => `${/^\s|^<\|/.test(text) && lead.trim() ? " " : ""}${oneLine(text)}`;

/** @param {string} text */
const squeezed = (text) => text.replace(/\s+/g, " ").trim();

/** @param {TreeNode} node for a screen reader */
function places(node) {
  const ram = node.ram_bytes ? `, ${size(node.ram_bytes)} in RAM` : "";
  const disk = node.disk_bytes ? `, ${size(node.disk_bytes)} on disk` : "";
  const store = node.store_bytes ? `, ${size(node.store_bytes)} in the shared store` : "";
  const slots = node.slots.length ? `, in slot ${node.slots.join(", ")}` : "";
  return `: tokens ${count(node.start)} to ${count(node.end)}${slots}${ram}${disk}${store}`;
}

/** @param {{current: HTMLElement | null}} box */
function useWidth(box) {
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return width;
}
