/** What the cache did for one turn: a bar, times, and the whole report behind it. */

import { OriginBar, told } from "../shared/bar.js";
import { count, duration } from "../shared/format.js";
import { html, useId, useState } from "../shared/html.js";
import { inspect, leave } from "./inspection.js";

/** @import {Report} from "../shared/origins.js" */
/** @import {Message} from "./message.js" */

/** @param {{message: Message}} props a reply with a report */
export function OriginsView({ message }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const report = /** @type {Report} */ (message.report);
  const toggle = () => {
    setOpen(!isOpen);
    inspect(message);
  };
  return html`
    <footer class="turn">
      <button type="button" class="origins" aria-expanded=${isOpen} aria-controls=${id} onClick=${toggle}
        onMouseEnter=${() => inspect(message)} onMouseLeave=${leave} onFocus=${() => inspect(message)} onBlur=${leave}>
        <${OriginBar} origins=${report.origins} />
        <span class="numbers">${sentence(report)}</span>
      </button>
      <div id=${id} hidden=${!isOpen}>${isOpen && html`<${ReportView} report=${report} />`}</div>
    </footer>`;
}

/** @param {Report} report */
export function sentence(report) {
  const parts = [`${count(report.reused)} of ${count(report.prompt_tokens)} tokens reused`];
  if (report.generated) parts.push(`first token after ${duration(report.waited_ms + report.prompt_ms)}`);
  const rate = (1000 * (report.generated - 1)) / report.generation_ms; // the first token came with the prompt
  if (report.generated > 1 && report.generation_ms > 0)
    parts.push(`${rate < 10 ? rate.toFixed(1) : count(rate)} tokens/s`);
  return parts.join(" · ");
}

/** @param {{report: Report}} props */
export function ReportView({ report }) {
  const reasons = Object.entries(report.reasons);
  return html`
    <div class="report">
      <p>${told(report.origins)}</p>
      ${
        reasons.length > 0 &&
        html`<p>Read now: ${reasons.map(([reason, tokens]) => `${count(tokens)} ${reason}`).join(" · ")}.</p>`
      }
      ${
        report.before &&
        html`<div class="difference">
        <p>${report.difference ?? `The prompt differs from what is kept at token ${count(report.differs_at ?? 0)}`}:</p>
        <dl><dt>kept</dt><dd><del>${report.before}</del></dd><dt>now</dt><dd><ins>${report.after}</ins></dd></dl>
      </div>`
      }
      ${report.notes.map((note) => html`<p class="quiet">${note}</p>`)}
      <p class="quiet">${count(report.generated)} tokens written · ${report.finish} ·
        waited ${duration(report.waited_ms)}, read ${duration(report.prompt_ms)}, wrote ${duration(report.generation_ms)}</p>
    </div>`;
}
