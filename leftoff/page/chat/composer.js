/** Where the next message is written. Typing draws nothing else, and what is not sent yet stays with its conversation. */

import { useCell } from "../shared/cell.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../shared/html.js";
import { modelOf, models } from "../shared/models.js";
import { reasonOf } from "../shared/reason.js";
import { attached, isPdf, isPicture } from "./attachments.js";
import { AttachedFiles } from "./attachments_view.js";
import { draftOf, keepDraft } from "./drafts.js";
import { busy, stop } from "./store.js";
import { send } from "./turns.js";

/** @import {Conversation} from "./conversation.js" */
/** @import {Attachment} from "./message.js" */

// The keys of a touch screen have no Shift+Enter: there Enter begins a line, and Send sends.
const isTouched = matchMedia("(pointer: coarse)").matches;
const HINT = isTouched ? "Write a message." : "Write a message. Enter sends, Shift+Enter begins a line.";
// What keeps the focus when a reply ends: where somebody types, and where the keyboard walks or scrolls in the messages.
const TAKEN = ":is(input, textarea, select):focus, .thread:focus-visible, .thread :focus-visible";

/** A touch screen would show its keyboard, over what there is to read. */
export const toComposer = () => isTouched || document.getElementById("composer")?.focus();

/** @param {{conversation: Conversation}} props */
export function Composer({ conversation }) {
  const isWriting = useCell(busy).has(conversation.meta.id);
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [files, setFiles] = useState(draftOf(conversation).files);
  const [problem, setProblem] = useState("");

  const take = async (/** @type {Iterable<File>} */ chosen) => {
    setProblem("");
    for (const file of chosen) {
      try {
        const taken = await attached(file);
        setFiles((before) => [...before, taken]);
      } catch (error) {
        setProblem(reasonOf(error));
      }
    }
    area.current?.focus();
  };
  useEffect(() => onDropped(take), []);
  useLayoutEffect(() => {
    /** @type {HTMLTextAreaElement} */ (area.current).value = draftOf(conversation).text;
  }, []);
  useLayoutEffect(() => {
    const isSelected = getSelection()?.type === "Range"; // to be copied: the focus would end that
    if (!isSelected && !document.querySelector(TAKEN)) toComposer();
  }, [isWriting]);
  useEffect(() => keepDraft(conversation, { files }), [files]);

  const remove = (/** @type {Attachment} */ file) => setFiles(files.filter((other) => other !== file));
  const onChosen = async (/** @type {{target: HTMLInputElement}} */ { target }) => {
    await take([...(target.files ?? [])]);
    target.value = ""; // so that the same file can be chosen again
  };
  const onPaste = (/** @type {ClipboardEvent} */ event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!pasted.length) return; // text
    event.preventDefault();
    void take(pasted);
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = area.current?.value.trim() ?? "";
    if (isWriting || (!text && !files.length)) return;
    /** @type {HTMLTextAreaElement} */ (area.current).value = "";
    keepDraft(conversation, { text: "", files: [] });
    setFiles([]);
    void send(text, files);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (!isTouched && event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`
    <form class="composer" onSubmit=${submit}>
      ${files.length > 0 && html`<${AttachedFiles} files=${files} remove=${remove} />`}
      <${Unread} conversation=${conversation} files=${files} />
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <textarea id="composer" ref=${area} rows="2" aria-label="Message" onKeyDown=${onKeyDown} onPaste=${onPaste}
        onInput=${(/** @type {{target: HTMLTextAreaElement}} */ { target }) => keepDraft(conversation, { text: target.value })}
        placeholder=${HINT}></textarea>
      <span class="row">
        <input type="file" ref=${picker} multiple hidden aria-label="Files to add" onChange=${onChosen} />
        <button type="button" onClick=${() => picker.current?.click()}>Add a picture, PDF or text</button>
        <span class="grow"></span>
        ${isWriting ? html`<button type="button" class="main" onClick=${stop}>Stop</button>` : html`<button type="submit" class="main">Send</button>`}
      </span>
    </form>`;
}

/** @param {{conversation: Conversation, files: Attachment[]}} props what of the files the model will not read */
function Unread({ conversation, files }) {
  const model = modelOf(useCell(models), conversation.meta.settings.model);
  if (!model?.meta) return null;
  const isBlind = !model.meta.vision && files.some(isPicture);
  const takesNoPdf = !model.meta.pdf && files.some(isPdf);
  return html`
    ${isBlind && html`<p class="problem" role="status">${model.id} sees no pictures: it is told that there was one.</p>`}
    ${takesNoPdf && html`<p class="problem" role="status">This server reads PDFs with <code>pip install 'leftoff[pdf]'</code>. Without it the model is only told that there was a file.</p>`}`;
}

/**
 * Files may be dropped anywhere on the page.
 * @param {(files: Iterable<File>) => void} take
 */
function onDropped(take) {
  const over = (/** @type {DragEvent} */ event) => event.preventDefault();
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    take([...(event.dataTransfer?.files ?? [])]);
  };
  document.addEventListener("dragover", over);
  document.addEventListener("drop", drop);
  return () => {
    document.removeEventListener("dragover", over);
    document.removeEventListener("drop", drop);
  };
}
