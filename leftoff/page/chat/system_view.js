/** The system prompt above the messages, if there is one. */

import { html } from "../shared/html.js";
import { Gutter, GutterNumbers } from "./gutter.js";

/** @param {{text: string}} props */
export function SystemView({ text }) {
  if (!text.trim()) return null;
  return html`
    <article class="message system" data-id="system" aria-label="System prompt">
      <${Gutter} id="system" />
      <div class="content">
        <header><span class="role">System</span><${GutterNumbers} id="system" /></header>
        <p class="words clipped">${text}</p>
      </div>
    </article>`;
}
