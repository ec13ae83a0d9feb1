/** A button that copies a text. */

import { html, useState } from "./html.js";

/** @param {{text: string, rich?: string, name: string}} props `rich` is the same as HTML; `name` says of what, to a screen reader */
export function CopyButton({ text, rich = "", name }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copied(text, rich);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" aria-label=${name} onClick=${copy}>${isDone ? "Copied" : "Copy"}</button>`;
}

/**
 * @param {string} text
 * @param {string} rich
 */
async function copied(text, rich) {
  if (navigator.clipboard && !rich) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // over plain HTTP, only what is selected can be copied
  area.value = text;
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  document.body.append(area);
  area.select();
  const add = (/** @type {ClipboardEvent} */ event) => {
    event.clipboardData?.setData("text/plain", text);
    if (rich) event.clipboardData?.setData("text/html", rich);
    event.preventDefault();
  };
  document.addEventListener("copy", add, { once: true });
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}
