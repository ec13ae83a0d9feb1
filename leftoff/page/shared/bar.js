/** Bars in true proportion: a part of no tokens is not drawn, and none is drawn wider than it is. */

import { count } from "./format.js";
import { html } from "./html.js";
import { LEGEND, partsOf } from "./origins.js";

/** @import {Origins} from "./origins.js" */

/** @param {Origins} origins */
export const told = (origins) =>
  partsOf(origins)
    .map((part) => `${count(part.tokens)} ${part.label}`)
    .join(" · ");

/** @param {{origins: Origins}} props */
export function OriginBar({ origins }) {
  return html`
    <span class="bar" role="img" aria-label=${told(origins)}>
      ${partsOf(origins).map(
        (part) =>
          html`<span class="part ${part.name}" data-tokens=${part.tokens} style=${{ flexGrow: part.tokens }}></span>`,
      )}
    </span>`;
}

/** @param {{origins: Origins}} props the parts of a bar, each with its colour and its tokens */
export function OriginList({ origins }) {
  return html`
    <ul class="legend" aria-label="Where tokens came from">
      ${partsOf(origins).map((part) => html`<li><span class="swatch ${part.name}"></span>${count(part.tokens)} ${part.label}</li>`)}
    </ul>`;
}

/** @param {{names?: string[]}} props those that are meant, or all */
export function Legend({ names }) {
  return html`
    <ul class="legend" aria-label="Colours">
      ${LEGEND.filter(({ name }) => names?.includes(name) ?? true).map(({ name, label }) => html`<li><span class="swatch ${name}"></span>${label}</li>`)}
    </ul>`;
}
