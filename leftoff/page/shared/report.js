/** The server's report on one request, in words. */

import { told } from "./bar.js";
import { count, duration } from "./format.js";
import { html } from "./html.js";

/** @import {Report} from "./origins.js" */

/** @param {Report} report */
export function sentence(report) {
  const parts = [`${count(report.reused)} of ${count(report.prompt_tokens)} tokens reused`];
  if (report.first_token_ms != null) parts.push(`first token after ${duration(report.first_token_ms)}`);
  const rate = (1000 * (report.generated - 1)) / report.generation_ms; // the first token came with the prompt
  if (report.generated > 1 && report.generation_ms > 0)
    parts.push(`${rate < 10 ? rate.toFixed(1) : count(rate)} tokens/s`);
  return parts.join(" · ");
}

/** @param {Report} report */
function drafted({ accepted, drafted, drafted_from }) {
  const sources = Object.entries(drafted_from).filter(([, tokens]) => tokens > 0);
  const from = sources.map(([source, tokens]) => `${count(tokens)} ${DRAFTED_FROM[source] ?? source}`).join(", ");
  return `Drafts: ${count(accepted)} of ${count(drafted)} tokens were right${from && `: from ${from}`}.`;
}

/** @type {Record<string, string>} */
const DRAFTED_FROM = {
  reply: "this reply",
  conversation: "this conversation",
  sibling: "others with the same beginning",
  mtp: "the model's next-token layer",
  other: "other conversations",
};

/** @param {{report: Report}} props */
export function ReportView({ report }) {
  const reasons = Object.entries(report.reasons);
  return html`
    <div class="report">
      ${report.prompt_tokens > 0 && html`<p>${told(report.origins) || `none of ${count(report.prompt_tokens)} tokens was read`}</p>`}
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
      ${report.error && html`<p class="problem">${report.error}</p>`}
      ${report.notes.map((note) => html`<p class="quiet">${note}</p>`)}
      ${report.drafted > 0 && html`<p>${drafted(report)}</p>`}
      <p class="quiet">${count(report.generated)} tokens written · ${report.finish} ·
        waited ${duration(report.waited_ms)}, read ${duration(report.prompt_ms)}, wrote ${duration(report.generation_ms)}</p>
    </div>`;
}
