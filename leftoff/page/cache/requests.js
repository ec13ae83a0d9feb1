/** The last requests as they come, each of which opens to its report. */

import { Legend, OriginBar, told } from "../shared/bar.js";
import { useCell } from "../shared/cell.js";
import { count, moment } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { askJson } from "../shared/http.js";
import { models } from "../shared/models.js";
import { ReportView, sentence, spared } from "../shared/report.js";

import { intoSight } from "./clients.js";

/** @import {MessageOrigins, Report} from "../shared/origins.js" */

const SHOWN_MESSAGES = 50;

/** @param {{reports: Report[]}} props */
export function Requests({ reports }) {
  return html`
    <section class="panel requests" aria-labelledby="requests-title">
      <header class="row"><h2 id="requests-title">Requests</h2><${Legend} /></header>
      ${reports.length === 0 && html`<p class="quiet">None yet.</p>`}
      <ul>${reports.map((report) => html`<${Request} key=${report.id || report.at} report=${report} />`)}</ul>
    </section>`;
}

/** @param {{report: Report}} props */
function Request({ report }) {
  const [messages, setMessages] = useState(/** @type {MessageOrigins[] | null} */ (null));
  const open = async (/** @type {{target: HTMLDetailsElement}} */ event) => {
    intoSight(event);
    if (!event.target.open || messages || !report.id) return;
    const found = await askJson(`/cache/requests/${report.id}`).catch(() => ({ messages: [] }));
    setMessages(found.messages);
  };
  const isRead = report.prompt_tokens > 0;
  const isOne = useCell(models).length < 2;
  return html`
    <li>
      <details onToggle=${open}>
        <summary>
          <time>${moment(1000 * report.at)}</time>
          ${isRead ? html`<${OriginBar} origins=${report.origins} />` : html`<span></span>`}
          <span>${isRead ? [report.client, isOne ? "" : report.model, spared(report)].filter(Boolean).join(" · ") : report.line}</span>
          <span class="quiet title">${report.title}</span>
        </summary>
        ${isRead && html`<p class="quiet">${report.route}${report.conversation && ` · conversation ${report.conversation}`} · ${sentence(report)}</p>`}
        <${ReportView} report=${report} />
        ${messages && html`<${Messages} messages=${messages} />`}
      </details>
    </li>`;
}

/** @param {{messages: MessageOrigins[]}} props the first of them are left out if there are too many */
function Messages({ messages }) {
  const shown = messages.slice(-SHOWN_MESSAGES);
  return html`
    <table class="messages">
      <thead><tr><th scope="col">message</th><th scope="col">tokens</th><th scope="col">came from</th></tr></thead>
      <tbody>${shown.map(
        (message) => html`
        <tr><td>${message.role}</td><td>${count(message.tokens)}</td>
          <td><${OriginBar} origins=${message.origins} /><span class="numbers">${told(message.origins)}</span></td></tr>`,
      )}</tbody>
    </table>
    ${shown.length < messages.length && html`<p class="quiet">and ${count(messages.length - shown.length)} messages before these</p>`}`;
}
