/** The head of a conversation: its title, the model, and how much of the model's context it takes. */

import { count, percent } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { modelOf, useModels } from "../shared/models.js";
import { download } from "./sidebar.js";
import { changeSettings, rename } from "./store.js";

/** @import {Conversation} from "./conversation.js" */
/** @import {Model} from "../shared/models.js" */

/** @param {{conversation: Conversation, hasSidebar: boolean, showSidebar: (on: boolean) => void, showSettings: () => void}} props */
export function Head({ conversation, hasSidebar, showSidebar, showSettings }) {
  const [isRenamed, setRenamed] = useState(false);
  const isEmpty = conversation.messages.size === 0;
  const { title } = conversation.meta;
  return html`
    <div class="row head">
      <button type="button" class="small only-narrow" aria-expanded=${hasSidebar} onClick=${() => showSidebar(!hasSidebar)}>Conversations</button>
      ${
        isRenamed
          ? html`<${TitleField} title=${title} close=${() => setRenamed(false)} />`
          : html`<h1 class="grow" title=${title}>${title || "New conversation"}</h1>`
      }
      <${ModelView} conversation=${conversation} />
      ${!isEmpty && html`<button type="button" class="small" onClick=${() => setRenamed(true)}>Rename</button>`}
      ${!isEmpty && html`<button type="button" class="small" onClick=${() => download([conversation.meta])}>Export</button>`}
      <button type="button" class="small" onClick=${showSettings}>Settings</button>
    </div>`;
}

/** @param {{title: string, close: () => void}} props */
function TitleField({ title, close }) {
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    void rename(String(new FormData(form).get("title")).trim() || title);
    close();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation(); // it does not stop a reply
    close();
  };
  const select = (/** @type {HTMLInputElement | null} */ field) => field?.select();
  return html`
    <form class="grow" onSubmit=${submit} onFocusOut=${close} onKeyDown=${onKeyDown}>
      <input class="wide" name="title" aria-label="Title" defaultValue=${title} ref=${select} autocomplete="off" />
    </form>`;
}

/** @param {{conversation: Conversation}} props asks anew with every message: the server may run another model by now */
function ModelView({ conversation }) {
  const path = conversation.path;
  const { models, problem } = useModels(path.length);
  const wanted = conversation.meta.settings.model;
  const model = modelOf(models, wanted);
  if (!model || problem) return html`<span class="quiet" role="status">${problem}</span>`;
  const report = path.findLast((message) => message.report)?.report;
  const used = report ? report.prompt_tokens + report.generated : 0;
  const size = model.meta?.n_ctx ?? 0;
  const share = used / size;
  return html`
    <span class="quiet model">
      ${models.length > 1 ? html`<${ModelChoice} models=${models} chosen=${wanted || model.id} />` : html`<span>${model.id}</span>`}
      ${used === 0 && size > 0 && html`<span>${count(size)} tokens of context</span>`}
      ${used > 0 && size > 0 && html`<span class=${share > 0.9 ? "problem" : ""}>${count(used)} of ${count(size)} tokens, ${percent(share)}</span>`}
    </span>`;
}

/** @param {{models: Model[], chosen: string}} props what was chosen once may not be there any more */
function ModelChoice({ models, chosen }) {
  const isThere = models.some(({ id }) => id === chosen);
  const choose = (/** @type {{target: HTMLSelectElement}} */ { target }) =>
    void changeSettings({ model: target.value });
  return html`
    <select aria-label="Model" value=${chosen} onChange=${choose}>
      ${models.map(({ id, status }) => html`<option key=${id} value=${id}>${id} · ${status.value}</option>`)}
      ${!isThere && html`<option key=${chosen} value=${chosen}>${chosen} · not here</option>`}
    </select>`;
}
