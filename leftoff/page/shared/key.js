/** Asks for the API key, once for a session. */

import { useCell } from "./cell.js";
import { html, useEffect, useRef } from "./html.js";
import { apiKey, isKeyNeeded, setKey } from "./http.js";

export function KeyDialog() {
  const isNeeded = useCell(isKeyNeeded);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (isNeeded) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isNeeded]);
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    setKey(String(new FormData(form).get("key")));
  };
  return html`
    <dialog ref=${dialog} aria-labelledby="key-title">
      <form onSubmit=${submit}>
        <h2 id="key-title">API key</h2>
        <p>${apiKey.value ? "This server does not know the key that was given." : "This server asks for an API key."}</p>
        <p><label>Key <input name="key" type="password" required autocomplete="off" /></label></p>
        <p class="quiet">It is kept until this tab is closed.</p>
        <button type="submit" class="main">Use this key</button>
      </form>
    </dialog>`;
}
