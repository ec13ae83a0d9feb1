/** One message as it is shown: its text, what can be done to it, and what the cache did for it. */

import { Cell, useCell } from "../shared/cell.js";
import { CopyButton } from "../shared/copy.js";
import { moment } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { Body } from "./body.js";
import { Branches, SideBySide } from "./branches.js";
import { Gutter, GutterNumbers } from "./gutter.js";
import { OriginsView } from "./origins_view.js";
import { writing } from "./store.js";
import { edit, goOn, regenerate } from "./turns.js";

/** @import {Conversation} from "./conversation.js" */
/** @import {Message} from "./message.js" */

const NOTHING = new Cell(/** @type {Map<string, Message>} */ (new Map()));
const ROLES = { user: "You", assistant: "Model", tool: "Tool result" };

/** @param {{message: Message, conversation: Conversation}} props */
export function MessageView({ message: kept, conversation }) {
  const live = useCell(kept.state === "writing" ? writing : NOTHING); // others are not drawn again with every token
  const message = live.get(kept.id) ?? kept;
  const [isEdited, setEdited] = useState(false);
  const [isCompared, setCompared] = useState(false);
  const siblings = conversation.siblingsOf(kept);
  const role = (conversation.hasSeveralModels && message.model) || ROLES[message.role];
  return html`
    <article class="message ${message.role}" data-id=${message.id} aria-label=${role}>
      <${Gutter} id=${message.id} />
      <div class="content">
        <header>
          <span class="role">${role}</span>
          <time class="told">${moment(message.created)}</time>
          <${GutterNumbers} id=${message.id} />
          <${Branches} message=${message} siblings=${siblings} isCompared=${isCompared} compare=${setCompared} />
          <${Actions} message=${message} schema=${conversation.meta.settings.schema} startEdit=${() => setEdited(true)} />
        </header>
        ${
          isEdited
            ? html`<${Editor} message=${message} close=${() => setEdited(false)} />`
            : isCompared
              ? html`<${SideBySide} siblings=${siblings} shown=${message.id} />`
              : html`<${Body} message=${message} />`
        }
        ${message.report && html`<${OriginsView} message=${message} />`}
      </div>
    </article>`;
}

/** @param {{message: Message, schema: string, startEdit: () => void}} props */
function Actions({ message, schema, startEdit }) {
  if (message.state === "writing") return null;
  const isReply = message.role === "assistant";
  const isUnfinished = message.state === "cut" || message.finish !== "stop";
  // a schema holds for what is still to come, from its beginning
  const canGoOn = isReply && message.content && !schema && !message.calls?.length && isUnfinished;
  return html`
    <span class="actions">
      <${CopyButton} text=${message.content} name="Copy this message" />
      <button type="button" class="small" onClick=${startEdit}>Edit</button>
      ${isReply && html`<button type="button" class="small" onClick=${() => regenerate(message)}>Regenerate</button>`}
      ${canGoOn && html`<button type="button" class="small" onClick=${() => goOn(message)}>Continue</button>`}
    </span>`;
}

/** @param {{message: Message, close: () => void}} props */
function Editor({ message, close }) {
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    close();
    void edit(message, String(new FormData(form).get("content")));
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.stopPropagation(); // it does not stop a reply
      close();
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      /** @type {HTMLTextAreaElement} */ (event.target).form?.requestSubmit();
    }
  };
  const focus = (/** @type {HTMLTextAreaElement | null} */ area) => area?.focus();
  return html`
    <form class="editor" onSubmit=${submit} onKeyDown=${onKeyDown}>
      <textarea name="content" aria-label="Message" ref=${focus}>${message.content}</textarea>
      <span class="row">
        <button type="submit" class="main small">${message.role === "assistant" ? "Save as a branch" : "Send as a branch"}</button>
        <button type="button" class="small" onClick=${close}>Cancel</button>
        <span class="quiet">The message as it was stays, on its own branch.</span>
      </span>
    </form>`;
}
