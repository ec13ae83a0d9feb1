/** The chat. */

import { Legend } from "../shared/bar.js";
import { useCell } from "../shared/cell.js";
import { counted } from "../shared/format.js";
import { Keys } from "../shared/help.js";
import { html, useEffect, useState } from "../shared/html.js";
import { Composer, toComposer } from "./composer.js";
import { Head } from "./head.js";
import { refusal, unkept } from "./library.js";
import { SettingsDialog } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { beginNew, open, said, stop } from "./store.js";
import { Thread } from "./thread.js";

export function ChatView() {
  const conversation = useCell(open);
  const news = useCell(said);
  const [hasSettings, setSettings] = useState(false);
  const [hasSidebar, setSidebar] = useState(false); // on a phone, where it covers the messages
  useEffect(() => onShortcuts(() => setSettings(true)), []);
  const isEmpty = conversation.messages.size === 0;
  return html`
    <div class="chat ${hasSidebar ? "with-sidebar" : ""}">
      <${Sidebar} close=${() => setSidebar(false)} />
      <div class="conversation">
        <${Head} key=${conversation.meta.id} conversation=${conversation} hasSidebar=${hasSidebar} showSidebar=${setSidebar} showSettings=${() => setSettings(true)} />
        ${isEmpty ? html`<${Welcome} />` : html`<${Thread} conversation=${conversation} />`}
        <${Full} />
        <${Composer} key=${conversation.meta.id} conversation=${conversation} />
      </div>
      <${SettingsDialog} isOpen=${hasSettings} close=${() => setSettings(false)} />
      <p class="unseen" role="status">${news}</p>
    </div>`;
}

/** Shown while the browser has no room for what was said. */
function Full() {
  const { size } = useCell(unkept);
  const why = useCell(refusal);
  if (!size) return null;
  return html`<p class="problem full" role="alert">
    ${why}: ${counted(size, "conversation")} will be lost when this page is closed. Export what you need, or delete others.
  </p>`;
}

function Welcome() {
  return html`
    <section class="welcome thread">
      <p>Under each reply a bar shows where the tokens of its prompt came from. Point at it to see that for every message.</p>
      <${Legend} />
      <${Keys} />
    </section>`;
}

/** @param {() => void} showSettings */
function onShortcuts(showSettings) {
  /** @type {Record<string, () => void>} */
  const shortcuts = {
    KeyN: () => {
      beginNew();
      toComposer();
    },
    KeyK: () => document.getElementById("search")?.focus(),
    KeyS: showSettings,
    KeyM: () => document.getElementById("composer")?.focus(),
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
    if (!event.altKey || event.ctrlKey || event.metaKey || !shortcuts[event.code]) return;
    event.preventDefault();
    shortcuts[event.code]();
  };
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}
