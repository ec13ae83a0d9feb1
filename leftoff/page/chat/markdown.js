/** The text of a message as Markdown. Nothing of it is ever run: tags are shown as they were written, links lead to the
 * web or nowhere, images are links, and DOMPurify has the last word. */

import { useCell } from "../shared/cell.js";
import { CopyButton } from "../shared/copy.js";
import { html, useMemo } from "../shared/html.js";
import { Marked } from "../vendor/marked.js";
import "../vendor/purify.js";
import { highlighted } from "./highlight.js";
import { escaped, FORMULAS, library, SAFE_ATTRIBUTES, SAFE_TAGS } from "./math.js";

/** @import {Token} from "../vendor/marked.js" */

const MAX_CHARACTERS = 100_000; // beyond that it is shown as it is: parsing would take longer than a frame
const MAX_SIGNS = 5000;
const CHUNK_CHARACTERS = 16_384;
const PLAIN = ["type", "checked", "disabled", "start", "align", ...SAFE_ATTRIBUTES]; // whose values are no addresses
const SAFE = {
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a", "input", "span"],
    ...["h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
    ...SAFE_TAGS,
  ],
  ALLOWED_ATTR: ["href", "class", ...PLAIN],
  ADD_URI_SAFE_ATTR: PLAIN,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_TRUSTED_TYPE: true,
};
const marked = new Marked({
  extensions: FORMULAS,
  renderer: {
    html: (/** @type {Token} */ token) => escaped(token.raw),
    image: (/** @type {Token} */ token) =>
      `<a href="${escaped(token.href ?? "")}">${escaped(token.text || "image")}</a>`,
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.tagName === "INPUT") node.setAttribute("aria-label", "task"); // a checkbox in a list
});

/**
 * @param {string} source
 * @returns {string} trusted HTML
 */
export const clean = (source) => DOMPurify.sanitize(source, SAFE);

/**
 * The blocks of a text; null if it is better shown as it is: too long, mostly signs that may open and close each other,
 * or nested deeper than the parser can go.
 * @param {string} text
 * @returns {Token[] | null}
 */
function blocksOf(text) {
  if (text.length > MAX_CHARACTERS) return null;
  const signs = text.match(/[*_`[\]<>~|$\\]/g)?.length ?? 0;
  if (signs > MAX_SIGNS && 5 * signs > text.length) return null;
  try {
    return marked.lexer(text).filter((token) => token.type !== "space");
  } catch {
    return null;
  }
}

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const tokens = useMemo(() => blocksOf(text), [text]);
  if (tokens === null) return html`<${PlainText} text=${text} />`;
  return html`<div class="markdown">
    ${tokens.map((token, index) =>
      token.type === "code"
        ? html`<${CodeBlock} key=${index} text=${token.text} language=${token.lang ?? ""} />`
        : token.type === "table"
          ? html`<${Table} key=${index} token=${token} />`
          : html`<${Block} key=${index} token=${token} />`,
    )}
  </div>`;
}

/** @param {Token} token */
function htmlOf(token) {
  try {
    return marked.parser([token]);
  } catch {
    return escaped(token.raw); // nested too deep
  }
}

/** @param {Token} token @returns {string} trusted HTML, made again only if its own text has changed, or formulas can be drawn */
const useHtml = (token) => useMemo(() => clean(htmlOf(token)), [token.raw, useCell(library)]);

/** @param {{token: Token}} props */
function Block({ token }) {
  return html`<div class="block" dangerouslySetInnerHTML=${{ __html: useHtml(token) }}></div>`;
}

/** @param {{token: Token}} props copied as Markdown, and as cells where those are pasted into a sheet */
function Table({ token }) {
  const trusted = useHtml(token);
  return html`<figure class="table">
    <div class="block" tabindex="0" dangerouslySetInnerHTML=${{ __html: trusted }}></div>
    <${CopyButton} text=${token.raw.trim()} rich=${String(trusted)} name="Copy this table" />
  </figure>`;
}

/** @param {{text: string, language: string}} props */
export function CodeBlock({ text, language }) {
  const name = language.split(/\s/)[0];
  const trusted = useMemo(() => clean(highlighted(text, name) ?? escaped(text)), [text, name]);
  return html`<figure class="code">
    <figcaption><span>${name || "text"}</span><${CopyButton} text=${text} name="Copy this code" /></figcaption>
    <pre tabindex="0"><code dangerouslySetInnerHTML=${{ __html: trusted }}></code></pre>
  </figure>`;
}

/** @param {{text: string}} props in chunks, of which the browser lays out only those in sight */
function PlainText({ text }) {
  const number = Math.ceil(text.length / CHUNK_CHARACTERS);
  const chunks = Array.from({ length: number }, (_, index) =>
    text.slice(index * CHUNK_CHARACTERS, (index + 1) * CHUNK_CHARACTERS),
  );
  return html`<div class="plain">${chunks.map((chunk, index) => html`<div key=${index} class="chunk">${chunk}</div>`)}</div>`;
}
