/** The text of a message as Markdown. Nothing of it is ever run: tags are shown as they were written, links lead to the
 * web or nowhere, images are links, and DOMPurify has the last word. */

import { CopyButton } from "../shared/copy.js";
import { html, useMemo } from "../shared/html.js";
import { Marked } from "../vendor/marked.js";
import "../vendor/purify.js";
import { highlighted } from "./highlight.js";

/** @import {Token} from "../vendor/marked.js" */

const MOST_CHARACTERS = 100_000; // beyond that it is shown as it is: parsing would take longer than a frame
const MOST_SIGNS = 5000;
const CHUNK_CHARACTERS = 16_384;
const PLAIN = ["type", "checked", "disabled", "start", "align"]; // whose values are no addresses
const SAFE = {
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a", "input", "span"],
    ...["h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
  ],
  ALLOWED_ATTR: ["href", "class", ...PLAIN],
  ADD_URI_SAFE_ATTR: PLAIN,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_TRUSTED_TYPE: true,
};
const ENTITIES = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" });

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);

/** LaTeX is shown as it was written: Markdown would take its signs for its own. */
const MATH =
  /^(?:\$\$[\s\S]{1,2000}?\$\$|\\\[[\s\S]{1,2000}?\\\]|\\\([\s\S]{1,2000}?\\\)|\$(?![\s$])[^$\n]{0,500}[^\s$\\]\$(?!\d))/;

const marked = new Marked({
  extensions: [
    {
      name: "math",
      level: "inline",
      start: (/** @type {string} */ source) => source.match(/\$|\\[[(]/)?.index,
      tokenizer: (/** @type {string} */ source) => {
        const [raw] = MATH.exec(source) ?? [];
        return raw && { type: "math", raw };
      },
      renderer: (/** @type {Token} */ token) => `<code class="math">${escaped(token.raw)}</code>`,
    },
  ],
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
  if (text.length > MOST_CHARACTERS) return null;
  const signs = text.match(/[*_`[\]<>~|$\\]/g)?.length ?? 0;
  if (signs > MOST_SIGNS && 5 * signs > text.length) return null;
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

/** @param {{token: Token}} props one block: drawn again only if its own text has changed */
function Block({ token }) {
  const trusted = useMemo(() => clean(htmlOf(token)), [token.raw]);
  return html`<div class="block" dangerouslySetInnerHTML=${{ __html: trusted }}></div>`;
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
