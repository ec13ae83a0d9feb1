/** The files of a message as they are shown, and what the cache did for its pictures. */

import { useCell } from "../shared/cell.js";
import { html, useEffect, useState } from "../shared/html.js";
import { isPicture, sized } from "./attachments.js";
import { open } from "./store.js";

/** @import {Conversation} from "./conversation.js" */
/** @import {Attachment, Message} from "./message.js" */

/** @param {{file: Attachment, note?: string}} props */
function Picture({ file, note }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(/** @type {Blob} */ (file.blob));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [file.blob]);
  return html`
    <figure class="picture">
      ${url && html`<img src=${url} alt=${file.name} />`}
      ${note && html`<figcaption class="quiet">${note}</figcaption>`}
    </figure>`;
}

/** @param {{message: Message}} props */
export function Attachments({ message }) {
  const fates = fatesOf(useCell(open));
  return message.files?.map((file) => {
    if (isPicture(file)) return html`<${Picture} file=${file} note=${fates.get(file)} />`;
    if (file.blob) return html`<p class="file">${file.name} · ${sized(file)}</p>`;
    return html`<details class="file"><summary>${file.name} · ${sized(file)}</summary><pre tabindex="0">${file.text}</pre></details>`;
  });
}

/** @param {{files: Attachment[], remove: (file: Attachment) => void}} props before they are sent */
export const AttachedFiles = ({ files, remove }) =>
  html`
    <ul class="files" aria-label="Files">
      ${files.map(
        (file) => html`
        <li>
          ${isPicture(file) && html`<${Picture} file=${file} />`}
          ${file.name} <span class="quiet">${sized(file)}</span>
          <button type="button" class="small" aria-label=${`Remove ${file.name}`} onClick=${() => remove(file)}>×</button>
        </li>`,
      )}
    </ul>`;

/**
 * What the cache did for each picture when the latest reply was asked for, by the server's report, such as
 * `256 tokens, reused`. It lists them in the order of the prompt, in which a PDF may be any number of them: of several, the
 * numbers cannot be told.
 * @param {Conversation} conversation
 * @returns {Map<Attachment, string>}
 */
function fatesOf({ path }) {
  const end = path.findLastIndex(({ report }) => report?.images?.length);
  const listed = [...(path[end]?.report?.images ?? [])];
  const files = path.slice(0, end + 1).flatMap((message) => message.files ?? []);
  const pictures = files.filter(isPicture);
  const documents = files.filter((file) => file.blob && !isPicture(file));
  if (!listed.length || documents.length > 1) return new Map();
  if (documents.length) {
    const before = files.slice(0, files.indexOf(documents[0])).filter(isPicture).length;
    listed.splice(before, listed.length - pictures.length);
  }
  if (listed.length !== pictures.length) return new Map(); // some were left out, since they did not fit
  return new Map(pictures.map((picture, index) => [picture, listed[index].replace(/^image \d+: /, "")]));
}
