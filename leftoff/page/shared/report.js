/** The server's report on one request, in words. */

import { OriginList } from "./bar.js";
import { count, duration, percent, rounded } from "./format.js";
import { html } from "./html.js";

/** @import {Report} from "./origins.js" */

const TOLD_MS = 100;

/** @param {Report} report */
export function sentence(report) {
  const parts = [`${count(report.reused)} of ${count(report.prompt_tokens)} tokens reused`];
  if (report.first_token_ms != null) parts.push(`first token after ${duration(report.first_token_ms)}`);
  const rate = (1000 * (report.generated - 1)) / report.generation_ms; // the first token came with the prompt
  if (report.generated > 1 && report.generation_ms > 0)
    parts.push(`${rate < 10 ? rate.toFixed(1) : count(rate)} tokens/s`);
  return parts.join(" · ");
}

/**
 * What the cache spared a request, or several: `26k tokens, 99 % reused, 41 s spared`.
 * @param {Pick<Report, "prompt_tokens" | "reused" | "saved_ms">} sums
 */
export function spared({ prompt_tokens, reused, saved_ms }) {
  const share = prompt_tokens ? reused / prompt_tokens : 0;
  const saved = saved_ms >= TOLD_MS ? `, ${duration(saved_ms)} spared` : "";
  return `${rounded(prompt_tokens)} tokens, ${percent(share)} reused${saved}`;
}

/** @param {Report} report */
function drafted({ accepted, drafted, drafted_from }) {
  const sources = Object.entries(drafted_from).filter(([, tokens]) => tokens > 0);
  const from = sources.map(([source, tokens]) => `${count(tokens)} from ${DRAFTED_FROM[source] ?? source}`).join(", ");
  return `Drafts: ${count(accepted)} of ${count(drafted)} tokens were right${from && `: ${from}`}.`;
}

/** Why tokens were read, after how many. @type {Record<string, string>} */
const REASONS = {
  new: "new",
  edited: "changed, or after a change",
  evicted: "known once, and since removed for want of room",
  "past the last snapshot": "known, but after the last place to go on from",
  "other salt": "known under another salt only",
  "for logprobs": "for log-probabilities",
};

/** @type {Record<string, string>} */
const DRAFTED_FROM = {
  reply: "this reply",
  conversation: "this conversation",
  sibling: "conversations with the same beginning",
  mtp: "the model's next-token layer",
  eagle: "the EAGLE-3 head",
  model: "the draft model",
  other: "other conversations",
};

/** @param {{report: Report}} props */
export function ReportView({ report }) {
  const reasons = Object.entries(report.reasons);
  return html`
    <div class="report">
      ${report.prompt_tokens > 0 && html`<${OriginList} origins=${report.origins} />`}
      ${
        reasons.length > 0 &&
        html`<p>Read now: ${reasons.map(([reason, tokens]) => `${count(tokens)} ${REASONS[reason] ?? reason}`).join(" · ")}.</p>`
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
        waited ${duration(report.waited_ms)}${report.waited_for && ` (${report.waited_for})`}, read ${duration(report.prompt_ms)}, wrote ${duration(report.generation_ms)}</p>
    </div>`;
}
