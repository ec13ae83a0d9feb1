/** The branches that begin at a message: arrows to switch between them, and all of them side by side. */

import { html } from "../shared/html.js";
import { Body } from "./body.js";
import { select } from "./store.js";

/** @import {Message} from "./message.js" */

/** @param {{message: Message, siblings: Message[], isCompared: boolean, compare: (on: boolean) => void}} props */
export function Branches({ message, siblings, isCompared, compare }) {
  if (siblings.length < 2) return null;
  const index = siblings.findIndex((sibling) => sibling.id === message.id);
  const step = (/** @type {number} */ by) => select(siblings[(index + by + siblings.length) % siblings.length]);
  return html`
    <span class="branches" role="group" aria-label="Branches">
      <button type="button" class="small" aria-label="Previous branch" onClick=${() => step(-1)}>‹</button>
      <span>${index + 1} / ${siblings.length}</span>
      <button type="button" class="small" aria-label="Next branch" onClick=${() => step(1)}>›</button>
      <button type="button" class="small" aria-pressed=${isCompared} onClick=${() => compare(!isCompared)}>Side by side</button>
    </span>`;
}

/** @param {{siblings: Message[], shown: string}} props */
export function SideBySide({ siblings, shown }) {
  return html`
    <div class="side-by-side" role="list" tabindex="0" aria-label="Branches side by side">
      ${siblings.map(
        (sibling, index) => html`
          <div role="listitem" class=${sibling.id === shown ? "shown" : ""}>
            <button type="button" class="small" disabled=${sibling.id === shown} onClick=${() => select(sibling)}>
              ${sibling.id === shown ? `Branch ${index + 1}, shown` : `Show branch ${index + 1}`}
            </button>
            <${Body} message=${sibling} />
          </div>`,
      )}
    </div>`;
}
