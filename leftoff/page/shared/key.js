/** Asks for the API key, once for a session. */

import { useCell } from "./cell.js";
import { useDialog } from "./dialog.js";
import { html, useState } from "./html.js";
import { isKeyNeeded, problemWith, useKey } from "./http.js";

export function KeyDialog() {
  const isNeeded = useCell(isKeyNeeded);
  const dialog = useDialog(isNeeded);
  const [problem, setProblem] = useState("");
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const key = String(new FormData(/** @type {HTMLFormElement} */ (event.currentTarget)).get("key"));
    try {
      setProblem((await useKey(key)) ? "" : "This server does not know this key.");
    } catch (error) {
      setProblem(problemWith(error));
    }
  };
  const close = () => {
    isKeyNeeded.value = false;
  };
  return html`
    <dialog ref=${dialog} onClose=${close} aria-labelledby="key-title">
      <form onSubmit=${submit}>
        <h2 id="key-title">API key</h2>
        <p>This server wants an API key. It is kept until this tab is closed.</p>
        <p><label>Key <input name="key" type="password" required autocomplete="off" autofocus /></label></p>
        ${problem && html`<p class="problem" role="alert">${problem}</p>`}
        <span class="row end">
          <button type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
          <button type="submit" class="main">Use this key</button>
        </span>
      </form>
    </dialog>`;
}
