/** All conversations: search, open, delete, export and import. */

import { useCell } from "../shared/cell.js";
import { day, moment } from "../shared/format.js";
import { html, useEffect, useRef, useState } from "../shared/html.js";
import { reasonOf } from "../shared/reason.js";
import { isSure } from "../shared/sure.js";
import { toComposer } from "./composer.js";
import * as library from "./library.js";
import { beginNew, busy, heads, open, remove, restore, show } from "./store.js";

/** @import {Meta} from "./conversation.js" */

const SEARCH_PAUSE_MS = 150;

/** @param {{close: () => void}} props */
export function Sidebar({ close }) {
  const metas = useCell(heads);
  const current = useCell(open).meta.id;
  const writes = useCell(busy);
  const [wanted, setWanted] = useState("");
  const found = useFound(wanted, metas);
  const shown = found ? metas.filter((meta) => found.has(meta.id)) : metas;
  const choose = (/** @type {() => unknown} */ act) => {
    act();
    close();
    toComposer();
  };
  const openFirst = async (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.isComposing || !wanted.trim()) return;
    const hits = await library.found(wanted.trim()); // what is listed may still be of the words before
    const first = metas.find((meta) => hits.has(meta.id));
    if (first) choose(() => show(first));
  };
  return html`
    <nav class="sidebar" aria-label="Conversations">
      <button type="button" class="small only-narrow" onClick=${close}>Back</button>
      <button type="button" class="main wide" onClick=${() => choose(beginNew)}>New conversation</button>
      <input id="search" type="search" aria-label="Search conversations" placeholder="Search" value=${wanted} onKeyDown=${openFirst}
        onInput=${(/** @type {{target: HTMLInputElement}} */ { target }) => setWanted(target.value)} />
      <div class="entries">
        ${Object.entries(Object.groupBy(shown, (meta) => day(meta.updated))).map(
          ([name, group]) => html`
          <h2 class="quiet">${name}</h2>
          <ul>${group?.map((meta) => html`<${Entry} key=${meta.id} meta=${meta} isOpen=${meta.id === current} isBusy=${writes.has(meta.id)} open=${() => choose(() => show(meta))} />`)}</ul>`,
        )}
      </div>
      ${shown.length === 0 && html`<p class="quiet">${wanted ? "Nothing found." : "No conversation yet."}</p>`}
      <${Transfer} metas=${metas} />
    </nav>`;
}

/** @param {{meta: Meta, isOpen: boolean, isBusy: boolean, open: () => void}} props */
function Entry({ meta, isOpen, isBusy, open: show }) {
  const title = meta.title || "Untitled";
  const drop = async () => (await isSure(`Delete “${title}” and all its branches?`, "Delete")) && remove(meta);
  return html`
    <li class="${isOpen ? "current" : ""} ${isBusy ? "busy" : ""}">
      <button type="button" class="title" aria-current=${isOpen ? "true" : undefined} title=${moment(meta.updated)} onClick=${show}><span>${title}</span></button>
      ${isBusy && html`<span class="dot" role="img" aria-label="A reply is being written"></span>`}
      <button type="button" class="small delete" aria-label=${`Delete ${title}`} onClick=${drop}>×</button>
    </li>`;
}

/**
 * The ids of the conversations with a text; null while nothing is searched for.
 * @param {string} wanted
 * @param {Meta[]} metas
 */
function useFound(wanted, metas) {
  const [found, setFound] = useState(/** @type {Set<string> | null} */ (null));
  useEffect(() => {
    let isLast = true;
    const search = async () => {
      const ids = wanted.trim() ? await library.found(wanted.trim()) : null;
      if (isLast) setFound(ids); // a search that takes longer does not replace one that was begun after it
    };
    const timer = setTimeout(search, wanted.trim() ? SEARCH_PAUSE_MS : 0);
    return () => {
      isLast = false;
      clearTimeout(timer);
    };
  }, [wanted, metas]);
  return found;
}

/** @param {{metas: Meta[]}} props */
function Transfer({ metas }) {
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [problem, setProblem] = useState("");
  const take = async (/** @type {{target: HTMLInputElement}} */ { target }) => {
    setProblem("");
    for (const file of target.files ?? []) {
      try {
        await restore(await file.text());
      } catch (error) {
        setProblem(`${file.name} cannot be imported: ${reasonOf(error)}`);
      }
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
