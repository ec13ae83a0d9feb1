/** Asks before something is deleted. */

import { Cell, useCell } from "./cell.js";
import { useDialog } from "./dialog.js";
import { html } from "./html.js";

/** @typedef {{text: string, verb: string, answer: (isSure: boolean) => void}} Question */

const asked = new Cell(/** @type {Question | null} */ (null));

/**
 * @param {string} text
 * @param {string} verb on the button that agrees
 * @returns {Promise<boolean>}
 */
export const isSure = (text, verb) =>
  new Promise((answer) => {
    asked.value = { text, verb, answer };
  });

export function SureDialog() {
  const question = useCell(asked);
  const dialog = useDialog(question !== null);
  const answer = (/** @type {boolean} */ isAgreed) => {
    question?.answer(isAgreed);
    asked.value = null;
  };
  return html`
    <dialog ref=${dialog} onClose=${() => answer(false)} aria-label="Are you sure?">
      <p>${question?.text}</p>
      <span class="row end">
        <button type="button" onClick=${() => answer(false)}>Cancel</button>
        <button type="button" class="main" onClick=${() => answer(true)}>${question?.verb}</button>
      </span>
    </dialog>`;
}
