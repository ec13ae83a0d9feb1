/** The tool calls of a reply, with their arguments, and a place for the result of each. */

import { useCell } from "../shared/cell.js";
import { html } from "../shared/html.js";
import { CodeBlock } from "./markdown.js";
import { open } from "./store.js";
import { sendResult } from "./turns.js";

/** @import {Call, Message} from "./message.js" */

/** @param {{message: Message}} props */
export function Calls({ message }) {
  const path = useCell(open).path;
  const given = new Set(path.map((each) => each.callId));
  const isWaiting = message.state === "done" && path.some((each) => each.id === message.id);
  return html`${message.calls?.map(
    (call) => html`
      <section class="call" aria-label="Tool call">
        <h3>${call.name}</h3>
        <${CodeBlock} text=${indented(call.arguments)} language="json" />
        ${isWaiting && !given.has(call.id) && html`<${ResultForm} call=${call} />`}
      </section>`,
  )}`;
}

/** @param {string} text JSON, perhaps not complete yet */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** @param {{call: Call}} props */
function ResultForm({ call }) {
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    void sendResult(call.id, String(new FormData(form).get("result")));
  };
  return html`
    <form class="row" onSubmit=${submit}>
      <input name="result" aria-label=${`Result of ${call.name}`} placeholder="The result of this call" required />
      <button type="submit" class="small">Send the result</button>
    </form>`;
}
