/** All conversations: search, open, delete, export and import. */

import { useCell } from "../shared/cell.js";
import { html, useEffect, useRef, useState } from "../shared/html.js";
import * as library from "./library.js";
import { beginNew, heads, open, remove, restore, show } from "./store.js";

/** @import {Meta} from "./conversation.js" */

const SEARCH_PAUSE_MS = 150;

/** @param {{close: () => void}} props */
export function Sidebar({ close }) {
  const metas = useCell(heads);
  const current = useCell(open).meta.id;
  const [wanted, setWanted] = useState("");
  const found = useFound(wanted, metas);
  const shown = found ? metas.filter((meta) => found.has(meta.id)) : metas;
  const chosen = (/** @type {Promise<void> | void} */ _) => close();
  return html`
    <nav class="sidebar" aria-label="Conversations">
      <button type="button" class="small only-narrow" onClick=${close}>Back</button>
      <button type="button" class="main wide" onClick=${() => chosen(beginNew())}>New conversation</button>
      <input id="search" type="search" aria-label="Search conversations" placeholder="Search" value=${wanted}
        onInput=${(/** @type {{target: HTMLInputElement}} */ { target }) => setWanted(target.value)} />
      <ul>
        ${shown.map(
          (meta) => html`
          <li key=${meta.id} class=${meta.id === current ? "current" : ""}>
            <button type="button" class="title" aria-current=${meta.id === current ? "true" : undefined}
              onClick=${() => chosen(show(meta))}>${meta.title || "Untitled"}</button>
            <button type="button" class="small delete" aria-label=${`Delete ${meta.title || "Untitled"}`}
              onClick=${() => isSure(meta) && remove(meta)}>×</button>
          </li>`,
        )}
      </ul>
      ${shown.length === 0 && html`<p class="quiet">${wanted ? "Nothing found." : "No conversation yet."}</p>`}
      <${Transfer} metas=${metas} />
    </nav>`;
}

/** @param {Meta} meta */
const isSure = (meta) => confirm(`Delete “${meta.title || "Untitled"}” and all its branches?`);

/**
 * The ids of the conversations with a text; null while nothing is searched for.
 * @param {string} wanted
 * @param {Meta[]} metas
 */
function useFound(wanted, metas) {
  const [found, setFound] = useState(/** @type {Set<string> | null} */ (null));
  useEffect(() => {
    const search = async () => setFound(wanted.trim() ? await library.found(wanted.trim()) : null);
    const timer = setTimeout(search, wanted.trim() ? SEARCH_PAUSE_MS : 0);
    return () => clearTimeout(timer);
  }, [wanted, metas]);
  return found;
}

/** @param {{metas: Meta[]}} props */
function Transfer({ metas }) {
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [problem, setProblem] = useState("");
  const take = async (/** @type {{target: HTMLInputElement}} */ { target }) => {
    try {
      setProblem("");
      for (const file of target.files ?? []) await restore(JSON.parse(await file.text()));
    } catch (error) {
      setProblem(`It cannot be imported: ${/** @type {Error} */ (error).message}`);
    }
    target.value = "";
  };
  return html`
    <div class="transfer">
      <button type="button" class="small" disabled=${!metas.length} onClick=${() => download(metas)}>Export all</button>
      <button type="button" class="small" onClick=${() => picker.current?.click()}>Import</button>
      <input type="file" ref=${picker} hidden accept=".json,application/json" aria-label="Conversations to import" onChange=${take} />
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </div>`;
}

/** @param {Meta[]} metas */
export async function download(metas) {
  const archive = new Blob([JSON.stringify(await library.archived(metas), null, 1)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(archive);
  link.download = metas.length === 1 ? `${fileName(metas[0].title)}.json` : "leftoff-conversations.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {string} title */
const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "conversation";
