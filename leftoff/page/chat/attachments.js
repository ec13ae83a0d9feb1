/** Files that are attached to messages: texts, pictures and PDF documents, as they are read and sent. */

import { counted, size } from "../shared/format.js";

/** @import {Attachment} from "./message.js" */

const MAX_BYTES = 4 << 20; // of a text
const MAX_BYTES_OF_OTHERS = 20 << 20;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
const PDF = "application/pdf";

/** @param {Attachment} file */
export const isPicture = ({ blob }) => blob !== undefined && PICTURES.includes(blob.type);

/** @param {Attachment} file */
export const isPdf = ({ blob }) => blob?.type === PDF;

/** @param {Attachment} file what it is, beside its name */
export const sized = ({ text, blob }) => (blob ? size(blob.size) : counted(text?.length ?? 0, "character"));

/**
 * @param {File} file
 * @returns {Promise<Attachment>}
 */
export async function attached(file) {
  const name = file.name || "picture";
  if (PICTURES.includes(file.type) || file.type === PDF) {
    if (file.size > MAX_BYTES_OF_OTHERS) throw new Error(`${name} is larger than 20 MiB`);
    return { name, blob: new Blob([file], { type: file.type }) };
  }
  if (file.size > MAX_BYTES) throw new Error(`${name} is larger than 4 MiB: a prompt would hardly hold it`);
  try {
    return { name, text: new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()) };
  } catch {
    throw new Error(`${name} is no picture, no PDF and no text in UTF-8`);
  }
}

/**
 * A file as a part of a message in OpenAI's form, or as text.
 * @param {Attachment} file
 * @returns {Promise<object | string>}
 */
export async function asPart(file) {
  if (!file.blob) return fenced(file.name, file.text ?? "");
  const url = await dataUrlOf(file.blob);
  if (isPicture(file)) return { type: "image_url", image_url: { url } };
  return { type: "file", file: { filename: file.name, file_data: url } };
}

/**
 * A text as a code block, whose fence is longer than any in it.
 * @param {string} name
 * @param {string} text
 */
function fenced(name, text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${name}\n${fence}\n${text}\n${fence}`;
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
const dataUrlOf = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });

/**
 * For an archive, which is JSON.
 * @param {Attachment} file
 */
export const asArchived = async ({ name, text, blob }) =>
  blob ? { name, url: await dataUrlOf(blob) } : { name, text };

/**
 * Back from an archive; what is neither a text, a picture nor a PDF there is an empty text.
 * @param {any} file
 * @returns {Attachment}
 */
export function fromArchive({ name, text, url }) {
  const [, type, base64] = /^data:([\w/-]+);base64,([\w+/=]*)$/.exec(String(url ?? "")) ?? [];
  if (!type || !(PICTURES.includes(type) || type === PDF)) return { name: String(name), text: String(text ?? "") };
  try {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return { name: String(name), blob: new Blob([bytes], { type }) };
  } catch {
    return { name: String(name), text: "" };
  }
}
