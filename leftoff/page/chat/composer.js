/** Where the next message is written. It keeps its own text, so that typing draws nothing else. */

import { useCell } from "../shared/cell.js";
import { counted } from "../shared/format.js";
import { html, useEffect, useRef, useState } from "../shared/html.js";
import { send, stop, writing } from "./store.js";

/** @import {TextFile} from "./message.js" */

const MOST_BYTES = 4 << 20;

export function Composer() {
  const isWriting = useCell(writing) !== null;
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [files, setFiles] = useState(/** @type {TextFile[]} */ ([]));
  const [problem, setProblem] = useState("");

  const take = async (/** @type {Iterable<File>} */ chosen) => {
    setProblem("");
    for (const file of chosen) {
      try {
        const taken = await read(file);
        setFiles((before) => [...before, taken]);
      } catch (error) {
        setProblem(/** @type {Error} */ (error).message);
      }
    }
    area.current?.focus();
  };
  useEffect(() => onDropped(take), []);

  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = area.current?.value.trim() ?? "";
    if (isWriting || (!text && !files.length)) return;
    /** @type {HTMLTextAreaElement} */ (area.current).value = "";
    setFiles([]);
    void send(text, files);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`
    <form class="composer" onSubmit=${submit}>
      ${
        files.length > 0 &&
        html`
        <ul class="files" aria-label="Files">
          ${files.map(
            (file, index) => html`
            <li>${file.name} <span class="quiet">${counted(file.text.length, "character")}</span>
              <button type="button" class="small" aria-label=${`Remove ${file.name}`}
                onClick=${() => setFiles(files.filter((_, other) => other !== index))}>×</button></li>`,
          )}
        </ul>`
      }
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <textarea id="composer" ref=${area} rows="2" aria-label="Message" onKeyDown=${onKeyDown}
        placeholder="Write a message. Enter sends, Shift+Enter begins a line." autofocus></textarea>
      <span class="row">
        <input type="file" ref=${picker} multiple hidden aria-label="Text files"
          onChange=${(/** @type {{target: HTMLInputElement}} */ { target }) => take(target.files ?? [])} />
        <button type="button" onClick=${() => picker.current?.click()}>Add a text file</button>
        <span class="grow"></span>
        ${isWriting ? html`<button type="button" class="main" onClick=${stop}>Stop</button>` : html`<button type="submit" class="main">Send</button>`}
      </span>
    </form>`;
}

/**
 * @param {File} file
 * @returns {Promise<TextFile>}
 */
async function read(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than 4 MiB: a prompt would hardly hold it`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return { name: file.name, text };
  } catch {
    throw new Error(`${file.name} is no text in UTF-8: only text can be added`);
  }
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
