/** The tree as a drawing: width by tokens, colour by tier, snapshots as ticks, and paler the longer it was not used. */

import { count, size } from "../shared/format.js";
import { html, useEffect, useMemo, useRef, useState } from "../shared/html.js";
import { neighbour, placed } from "./layout.js";

/** @import {TreeNode} from "./feed.js" */
/** @import {Placed} from "./layout.js" */

const ROW_PX = 30;
const PALEST = 0.35;
const ARROWS = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"];

/** @param {{nodes: TreeNode[], zoom: number, chosen: string | null, choose: (id: string) => void}} props */
export function Drawing({ nodes, zoom, chosen, choose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(box);
  const all = useMemo(() => placed(nodes), [nodes]);
  const longest = Math.max(1, ...nodes.map((node) => node.end));
  const scale = (zoom * Math.max(200, width - 2)) / longest; // pixels per token
  const rows = 1 + Math.max(0, ...all.map((each) => each.row));
  const current = all.some((each) => each.node.id === chosen) ? chosen : all[0]?.node.id;
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (!ARROWS.includes(event.key) || !current) return;
    event.preventDefault();
    const next = neighbour(all, current, event.key);
    if (!next) return;
    choose(next);
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(`[data-node="${next}"]`))?.focus();
  };
  return html`
    <div class="drawing" ref=${box}>
      <div role="tree" aria-label="Prefixes in the cache" onKeyDown=${onKeyDown}
        style=${{ width: `${scale * longest}px`, height: `${rows * ROW_PX}px` }}>
        ${all.map(
          (each) => html`
          <${NodeView} key=${each.node.id} placed=${each} scale=${scale} isChosen=${each.node.id === chosen}
            isReached=${each.node.id === current} choose=${choose} />`,
        )}
      </div>
    </div>`;
}

/** @param {{placed: Placed, scale: number, isChosen: boolean, isReached: boolean, choose: (id: string) => void}} props */
function NodeView({ placed: { node, row, parentRow, level }, scale, isChosen, isReached, choose }) {
  const left = node.start * scale;
  const classes = ["node", isChosen ? "chosen" : "", node.is_found ? "found" : ""].join(" ");
  return html`
    ${
      parentRow >= 0 &&
      parentRow !== row &&
      html`<span class="elbow" aria-hidden="true"
      style=${{ left: `${left}px`, top: `${parentRow * ROW_PX + 4}px`, height: `${(row - parentRow) * ROW_PX + 4}px` }}></span>`
    }
    <div role="treeitem" class=${classes} data-node=${node.id} tabindex=${isReached ? 0 : -1} aria-level=${level}
      aria-selected=${isChosen} onClick=${() => choose(node.id)} onFocus=${() => choose(node.id)}
      style=${{ left: `${left}px`, top: `${row * ROW_PX}px`, width: `${Math.max(1, (node.end - node.start) * scale - 1)}px` }}>
      <span class="strip ${tierOf(node)}" style=${{ opacity: freshness(node.age_s) }}></span>
      ${node.disk_bytes > 0 && tierOf(node) !== "disk" && html`<span class="under disk" style=${{ opacity: freshness(node.age_s) }}></span>`}
      ${node.points.map(
        (point) => html`<span class="tick ${point.is_pinned ? "pinned" : ""}" key=${`${point.tier}${point.position}`}
        style=${{ left: `${(point.position - node.start) * scale - 1}px` }}></span>`,
      )}
      <span class="words">${oneLine(node.text)}</span>
      <span class="unseen">${places(node)}</span>
    </div>`;
}

/** @param {TreeNode} node the fastest place that holds any of it */
export function tierOf(node) {
  if (node.slots.length) return "live";
  if (node.ram_bytes) return "ram";
  if (node.disk_bytes) return "disk";
  return node.store_bytes ? "store" : "none";
}

/** @param {number} seconds */
const freshness = (seconds) => Math.max(PALEST, 1 - 0.13 * Math.log10(1 + seconds));

/** @param {string} text template marks are noise here, unless there is nothing else */
export const oneLine = (text) => squeezed(text.replace(/<\|[^|>]*\|>/g, " ")) || squeezed(text);

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
