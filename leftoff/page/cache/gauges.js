/** How full everything is, and what was spared since the server started. */

import { budget, count, duration, percent, size } from "../shared/format.js";
import { html } from "../shared/html.js";

/** @import {Slot, State, Tier, Totals} from "./feed.js" */

/** @param {{state: State}} props */
export function Gauges({ state }) {
  return html`
    <section class="gauges" aria-label="Gauges">
      ${state.tiers.map((tier) => html`<${TierGauge} key=${tier.name} tier=${tier} />`)}
      <${SlotsGauge} slots=${state.slots} capacity=${state.context_tokens} waiting=${state.waiting} running=${state.running} />
      <${Spared} totals=${state.totals} />
    </section>`;
}

const TITLES = /** @type {Record<string, string>} */ ({ disk: "Disk", store: "Shared store, as far as known here" });

/** @param {{tier: Tier}} props */
function TierGauge({ tier }) {
  const share = tier.budget_bytes ? tier.used_bytes / tier.budget_bytes : 0;
  return html`
    <div class="panel gauge">
      <h2>${TITLES[tier.name] ?? tier.name}</h2>
      <p class="big">${size(tier.used_bytes)} <span class="quiet">${budget(tier.budget_bytes, "of ")}</span></p>
      <${Meter} share=${share} name=${tier.name === "RAM" ? "ram" : tier.name} label=${`${tier.name}: ${percent(share)} used`} />
      <p class="quiet">${count(tier.entries)} snapshots${tier.evictions !== undefined && `, ${count(tier.evictions)} evicted`}</p>
      ${tier.written_bytes !== undefined && html`<p class="quiet">${size(tier.written_bytes)} written since the start</p>`}
    </div>`;
}

/** @param {{slots: Slot[], capacity: number, running: number, waiting: number}} props */
function SlotsGauge({ slots, capacity, running, waiting }) {
  const used = slots.reduce((sum, slot) => sum + (slot.tokens ?? 0), 0);
  return html`
    <div class="panel gauge">
      <h2>Slots</h2>
      <p class="big">${count(running)} <span class="quiet">running,</span> ${count(waiting)} <span class="quiet">waiting</span></p>
      <div class="slots" role="img" aria-label=${`${count(used)} tokens in ${slots.length} slots`}>
        ${slots.map((slot) => html`<${Meter} key=${`${slot.model} ${slot.id}`} share=${(slot.tokens ?? 0) / capacity} name="live" />`)}
      </div>
      <p class="quiet">${count(used)} of ${count(capacity)} tokens of context</p>
    </div>`;
}

/** @param {{totals: Totals}} props */
function Spared({ totals }) {
  const { reused_tokens: reused, computed_tokens: computed, prompt_seconds: seconds } = totals;
  const rate = seconds > 0 ? computed / seconds : 0;
  const all = reused + computed;
  return html`
    <div class="panel gauge">
      <h2>Spared since the start</h2>
      <p class="big">${count(reused)} <span class="quiet">tokens,</span> ${duration(1000 * totals.saved_seconds)}</p>
      <${Meter} share=${all ? reused / all : 0} name="live" label=${`${percent(all ? reused / all : 0)} of prompt tokens reused`} />
      <p class="quiet">${count(computed)} read${rate > 0 && ` at ${count(rate)}/s`}, ${count(totals.read_ahead_tokens)} read ahead, ${count(totals.requests)} requests</p>
    </div>`;
}

/** @param {{share: number, name: string, label?: string}} props */
function Meter({ share, name, label }) {
  return html`<span class="bar" role=${label ? "img" : undefined} aria-label=${label}>
    <span class=${name} style=${{ width: `${100 * Math.min(1, share)}%` }}></span></span>`;
}
