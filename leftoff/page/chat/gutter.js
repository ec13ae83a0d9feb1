/** The strip beside a message that shows, for the turn that is looked at, where the tokens of this message came from. */

import { told } from "../shared/bar.js";
import { useCell } from "../shared/cell.js";
import { html } from "../shared/html.js";
import { partsOf } from "../shared/origins.js";
import { inspected } from "./inspection.js";

/** @param {{id: string}} props of the message */
export function Gutter({ id }) {
  const origins = useCell(inspected)?.get(id);
  return html`
    <span class="gutter" aria-hidden="true">
      ${origins && partsOf(origins).map((part) => html`<span class="part ${part.name}" style=${{ flexGrow: part.tokens }}></span>`)}
    </span>`;
}

/** @param {{id: string}} props of the message */
export function GutterNumbers({ id }) {
  const origins = useCell(inspected)?.get(id);
  return html`<span class="told" data-origins=${origins && JSON.stringify(origins)}>${origins && told(origins)}</span>`;
}
