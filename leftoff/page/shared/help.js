/** What can be done here, and how: Alt+H, or the button in the head of the page. */

import { Legend } from "./bar.js";
import { html, useEffect, useRef } from "./html.js";

const KEYS = [
  ["Enter", "send; Shift+Enter begins a line. On a touch screen Enter begins one"],
  ["Esc", "stop the reply"],
  ["Alt+N", "new conversation"],
  ["Alt+K", "search conversations"],
  ["Alt+S", "settings of the conversation"],
  ["Alt+M", "write a message"],
  ["Alt+H", "this help"],
];
const HINTS = [
  [
    "Files",
    "Add, drop or paste texts (source, Markdown, logs), PDFs and pictures. A picture needs a model with a projector.",
  ],
  ["Branches", "Edit or regenerate any message: nothing is overwritten, and arrows lead from one branch to the other."],
  ["Formulas", "LaTeX between dollars or brackets is drawn; what you select and copy is LaTeX again."],
  ["Several at once", "A reply goes on while you read or write in another conversation."],
  ["The bar", "Under each reply: where the tokens of its prompt came from. Press it for the whole report."],
  ["The cache", "Who asked, what was spared, and every prefix that is kept: pin what must stay, drop what must not."],
  ["Your agent", "The engine's view has the lines that connect Claude Code, Codex, OpenCode and others."],
  ["What is kept", "Conversations stay in this browser. Export them to take them elsewhere."],
];

export function Keys() {
  return html`<dl class="keys">
    ${KEYS.map(([keys, what]) => html`<dt>${keys.split("+").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd>`)}
  </dl>`;
}

export function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const show = () => dialog.current?.open || dialog.current?.showModal();
  useEffect(() => {
    const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
      if (!event.altKey || event.ctrlKey || event.metaKey || event.code !== "KeyH") return;
      event.preventDefault();
      show();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  return html`
    <button type="button" class="small help" aria-haspopup="dialog" onClick=${show}>Help</button>
    <dialog ref=${dialog} aria-labelledby="help-title">
      <div class="row">
        <h2 id="help-title" class="grow">Help</h2>
        <button type="button" onClick=${() => dialog.current?.close()}>Close</button>
      </div>
      <${Keys} />
      <dl class="keys hints">${HINTS.map(([name, what]) => html`<dt>${name}</dt><dd>${what}</dd>`)}</dl>
      <${Legend} />
    </dialog>`;
}
