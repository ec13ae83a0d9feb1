/** Who asked: each client by name, what the cache spared it, and its latest conversations, each of which can be found in
 * the tree. */

import { OriginBar } from "../shared/bar.js";
import { counted, moment } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { askJson } from "../shared/http.js";
import { spared } from "../shared/report.js";
import { wanted } from "./feed.js";

/** @import {Client, Talk} from "./feed.js" */

const SHOWN = 6;
const MAX_TALKS = 1000;
const TITLE_CHARACTERS = 40; // enough to find it by

/** @param {{clients: Client[]}} props drawn in an order that seldom changes: rows that jump cannot be clicked */
export function Clients({ clients }) {
  const [isWhole, setWhole] = useState(false);
  if (!clients.length) return null;
  const sorted = clients.toSorted((one, other) => other.reused - one.reused);
  const rest = sorted.slice(SHOWN);
  return html`
    <section class="panel callers" aria-labelledby="clients-title">
      <h2 id="clients-title">Clients</h2>
      <ul>${sorted.slice(0, isWhole ? undefined : SHOWN).map((client) => html`<${ClientView} key=${client.client} client=${client} />`)}</ul>
      ${rest.length > 0 && html`<button type="button" class="small" aria-expanded=${isWhole} onClick=${() => setWhole(!isWhole)}>${isWhole ? "Show fewer" : `${counted(rest.length, "client")} more`}</button>`}
    </section>`;
}

/** @param {{client: Client}} props */
function ClientView({ client }) {
  const [all, setAll] = useState(/** @type {Talk[] | null} */ (null));
  const newer = new Set(client.latest.map(({ conversation }) => conversation));
  const talks = [...client.latest, ...(all ?? []).filter(({ conversation }) => !newer.has(conversation))];
  const more = client.conversations - talks.length;
  const readAll = async () => {
    const { clients } = await askJson(`/cache/clients?n=${MAX_TALKS}`);
    setAll(clients.find((/** @type {Client} */ each) => each.client === client.client)?.latest ?? null);
  };
  return html`
    <li>
      <details onToggle=${intoSight}>
        <summary>
          <strong>${client.client}</strong>
          <${OriginBar} origins=${client.origins} />
          <span>${counted(client.conversations, "conversation")}, ${counted(client.requests, "request")} · ${spared(client)}</span>
          <time class="quiet">${moment(1000 * client.at)}</time>
        </summary>
        <ul class="talks">${talks.map((talk) => html`<${TalkView} key=${talk.conversation} talk=${talk} />`)}</ul>
        ${more > 0 && !all && html`<button type="button" class="small" onClick=${readAll}>All that are known</button>`}
        ${more > 0 && all && html`<p class="quiet">and ${counted(more, "conversation")} before these, of which the sums are known</p>`}
      </details>
    </li>`;
}

/** @param {{talk: Talk}} props */
function TalkView({ talk }) {
  const title = talk.title || (talk.conversation ? "without words" : "prompts that are no chat");
  const find = () => {
    wanted.value = talk.title.slice(0, TITLE_CHARACTERS);
  };
  return html`
    <li>
      <span class="title" title=${title}>${title}</span>
      <${OriginBar} origins=${talk.origins} />
      <span>${counted(talk.requests, "request")} · ${spared(talk)}</span>
      <time class="quiet">${moment(1000 * talk.at)}</time>
      ${talk.title ? html`<button type="button" class="small" aria-label=${`Find ${title} in the tree`} onClick=${find}>Find</button>` : html`<span></span>`}
    </li>`;
}

/** @param {{target: HTMLDetailsElement}} event what a click has opened is seen without scrolling */
export const intoSight = ({ target }) => target.open && target.scrollIntoView({ block: "nearest" });
