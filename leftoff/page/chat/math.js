/** LaTeX as MathML, which browsers draw by themselves. The library is loaded with the first formula; until then, and
 * where a formula is none, the source is shown. A formula that is copied is LaTeX again. */

import { Cell } from "../shared/cell.js";

/** @typedef {typeof import("../vendor/temml.js").default} Library */

const STYLE = / style="[^"]*"/g; // the page's policy forbids them: chat.css has rules instead
const OPTIONS = { throwOnError: true, maxSize: [30, 30], maxExpand: 500 };

/** What of MathML may stand in a message. */
export const SAFE_TAGS = [
  ...["math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "mpadded"],
  ...["msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "mphantom"],
  ...["mtable", "mtr", "mtd", "menclose"],
];
export const SAFE_ATTRIBUTES = [
  ...["display", "alttext", "displaystyle", "scriptlevel", "mathvariant", "form", "fence", "separator", "stretchy"],
  ...["symmetric", "largeop", "movablelimits", "accent", "accentunder", "lspace", "rspace", "minsize", "maxsize"],
  ...["width", "height", "depth", "voffset", "linethickness", "columnalign", "columnspan", "rowspan", "notation"],
];

/** Null until there is a formula, and if it cannot be loaded. */
export const library = new Cell(/** @type {Library | null} */ (null));
let isLoading = false;

async function load() {
  if (isLoading) return;
  isLoading = true;
  try {
    library.value = (await import("../vendor/temml.js")).default;
  } catch {
    isLoading = false; // the server may be there again at the next formula
  }
}

const MATH = {
  block: /^ {0,3}(\$\$|\\\[)([\s\S]{1,4000}?)(?:\$\$|\\\])[ \t]*(?:\n+|$)/,
  shown: /^(\$\$|\\\[)([\s\S]{1,2000}?)(?:\$\$|\\\])/,
  inline: /^(?:\\\(([\s\S]{1,2000}?)\\\)|\$((?![\s$])[^$\n]{0,500}[^\s$\\])\$(?!\d))/,
};

/** @typedef {{type: "math", raw: string, source: string, isShown: boolean}} Formula `isShown`: on lines of its own */

/** How formulas are found in Markdown, which would take their signs for its own: as blocks, and in lines. */
export const FORMULAS = /** @type {const} */ (["block", "inline"]).map((level) => ({
  name: "math",
  level,
  start: (/** @type {string} */ source) => source.match(level === "block" ? /^ {0,3}(\$\$|\\\[)/m : /\$|\\[[(]/)?.index,
  tokenizer: (/** @type {string} */ source) => (level === "block" ? inBlock(source) : inLine(source)),
  renderer: (/** @type {Formula} */ formula) => drawn(formula),
}));

/**
 * @param {RegExpExecArray | null} found with the sign that opens it, and the source
 * @returns {Formula | undefined}
 */
const shown = (found) =>
  found?.[2].trim() ? { type: "math", raw: found[0], source: found[2], isShown: true } : undefined;

/** @param {string} text */
const inBlock = (text) => shown(MATH.block.exec(text));

/**
 * @param {string} text
 * @returns {Formula | undefined}
 */
function inLine(text) {
  const [raw, one, other] = MATH.inline.exec(text) ?? [];
  return raw ? { type: "math", raw, source: one ?? other, isShown: false } : shown(MATH.shown.exec(text));
}

/** @param {Formula} formula */
function drawn({ raw, source, isShown }) {
  const written = escaped(raw.trim());
  if (!library.value) void load();
  try {
    const made = library.value?.renderToString(source, { ...OPTIONS, displayMode: isShown });
    if (made) return made.replace(STYLE, "").replace("<math", () => `<math alttext="${written}"`);
  } catch {
    // no LaTeX, or none that is known
  }
  return `<code class="math">${written}</code>`;
}

const ENTITIES = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" });

/** @param {string} text */
export const escaped = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);

document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (!selection?.rangeCount || selection.isCollapsed) return;
  const copy = document.createElement("div");
  copy.append(selection.getRangeAt(0).cloneContents());
  const formulas = copy.querySelectorAll("math[alttext]");
  if (!formulas.length) return;
  for (const extra of copy.querySelectorAll("button, figcaption")) extra.remove();
  for (const formula of formulas) formula.replaceWith(formula.getAttribute("alttext") ?? "");
  document.body.append(copy); // what is not drawn has no lines
  // biome-ignore lint/performance/useDomNodeTextContent: lines are those of the layout
  event.clipboardData?.setData("text/plain", copy.innerText);
  event.clipboardData?.setData("text/html", copy.innerHTML);
  copy.remove();
  event.preventDefault();
});
