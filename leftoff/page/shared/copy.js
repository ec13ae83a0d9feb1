/** A button that copies a text. */

import { html, useState } from "./html.js";

/** @param {{text: string | (() => string), label?: string, name?: string}} props `name` says of what, to a screen reader */
export function CopyButton({ text, label = "Copy", name }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copied(typeof text === "string" ? text : text());
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" aria-label=${name} onClick=${copy}>${isDone ? "Copied" : label}</button>`;
}

/** @param {string} text */
async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // over plain HTTP, only what is selected can be copied
  area.value = text;
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}
