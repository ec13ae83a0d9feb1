/** The page: its header, and the view that the address names. */

import { CacheView } from "./cache/view.js";
import { begin } from "./chat/store.js";
import { ChatView } from "./chat/view.js";
import { DemoView } from "./demo/view.js";
import { EngineView } from "./engine/view.js";
import { Cell, useCell } from "./shared/cell.js";
import { Help } from "./shared/help.js";
import { html, render } from "./shared/html.js";
import { KeyDialog } from "./shared/key.js";
import { SureDialog } from "./shared/sure.js";

/** @type {Record<string, {title: string, View: () => unknown}>} */
const VIEWS = {
  chat: { title: "Chat", View: ChatView },
  cache: { title: "Cache", View: CacheView },
  engine: { title: "Engine", View: EngineView },
  demo: { title: "Demo", View: DemoView },
};

const hash = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "chat");
const place = new Cell(hash());
addEventListener("hashchange", () => {
  place.value = hash();
});

function Page() {
  const name = useCell(place);
  const { title, View } = VIEWS[name];
  document.title = `${title} · leftoff`;
  return html`
    <header class="page-head">
      <a class="brand" href="#chat">leftoff</a>
      <nav aria-label="Views">
        ${Object.entries(VIEWS).map(
          ([key, view]) => html`<a href="#${key}" aria-current=${key === name ? "page" : undefined}>${view.title}</a>`,
        )}
      </nav>
      <span class="grow"></span>
      <${Help} />
    </header>
    <main id="view"><${View} key=${name} /></main>
    <${KeyDialog} />
    <${SureDialog} />`;
}

await begin();
const root = /** @type {HTMLElement} */ (document.getElementById("page"));
root.replaceChildren();
render(html`<${Page} />`, root);
