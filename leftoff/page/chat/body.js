/** What a message says: reasoning, text, files, calls, and what went wrong. */

import { useCell } from "../shared/cell.js";
import { count, counted } from "../shared/format.js";
import { html } from "../shared/html.js";
import { modelOf, models } from "../shared/models.js";
import { Attachments } from "./attachments_view.js";
import { Calls } from "./calls.js";
import { Markdown } from "./markdown.js";
import { open } from "./store.js";

/** @import {Message} from "./message.js" */

/** @param {{message: Message}} props */
export function Body({ message }) {
  const { state, content, problem } = message;
  return html`
    ${message.reasoning && html`<${Reasoning} text=${message.reasoning} isOn=${state === "writing" && !content} />`}
    ${state === "writing" && !content && !message.reasoning && html`<${Reading} message=${message} />`}
    ${message.role === "user" ? html`<p class="words">${content}</p>` : html`<${Markdown} text=${content} />`}
    <${Attachments} message=${message} />
    ${Boolean(message.calls?.length) && html`<${Calls} message=${message} />`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${state === "cut" && !problem && html`<p class="quiet">Stopped.</p>`}
    ${message.finish === "length" && html`<p class="quiet">Cut off at the limit of tokens.</p>`}`;
}

/** @param {{text: string, isOn: boolean}} props folded, also while it is written */
function Reasoning({ text, isOn }) {
  return html`
    <details class="reasoning">
      <summary>${isOn ? "Reasoning…" : "Reasoning"} <span class="quiet">${counted(text.trim().split(/\s+/).length, "word")}</span></summary>
      <p class="words">${text.trim()}</p>
    </details>`;
}

/** @param {{message: Message}} props */
function Reading({ message }) {
  const progress = message.progress;
  const model = modelOf(useCell(models), useCell(open).meta.settings.model);
  if (!progress)
    return html`<p class="quiet reading">${model?.status.value === "loading" ? `Waiting: ${model.id} is being loaded…` : "Waiting…"}</p>`;
  const { total, cache, processed } = progress;
  if (cache === total) return html`<p class="quiet reading">All ${count(total)} tokens of the prompt are reused…</p>`;
  return html`<p class="quiet reading">
    Reading ${count(processed - cache)} of ${count(total - cache)} new tokens, ${count(cache)} reused
    <progress max=${total} value=${processed} aria-label="Tokens of the prompt"></progress>
  </p>`;
}
