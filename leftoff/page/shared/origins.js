/** Where the tokens of a prompt came from: the names that the server's reports use, in the order of bars. */

/**
 * @typedef {Record<string, number>} Origins tokens by origin; a reason, such as `new`, is one of those that were read now
 * @typedef {{role: string, tokens: number, origins: Origins}} MessageOrigins
 * @typedef {{id: string, at: number, client: string, route: string, conversation: string, title: string, model: string,
 *   saved_ms: number, prompt_tokens: number, reused: number, computed: number, generated: number,
 *   drafted: number, accepted: number, drafted_from: Record<string, number>,
 *   source: string, reasons: Record<string, number>, origins: Origins, differs_at: number | null,
 *   difference: string | null, before: string, after: string, finish: string, error: string | null, waited_ms: number,
 *   waited_for: string, prompt_ms: number, first_token_ms: number | null, generation_ms: number, line: string, notes: string[], images?: string[], messages?: MessageOrigins[]}} Report
 * @typedef {{name: string, label: string, tokens: number}} Part
 */

const KEPT = [
  { key: "live", name: "live", label: "live slot" },
  { key: "shared", name: "shared", label: "shared slot" },
  { key: "RAM", name: "ram", label: "RAM" },
  { key: "disk", name: "disk", label: "disk" },
  { key: "store", name: "store", label: "shared store" },
  { key: "read ahead", name: "ahead", label: "read ahead" },
];

const UNREAD = "not read"; // the request was cancelled before

/** All colours with what they mean, for legends. */
export const LEGEND = [...KEPT.map(({ name, label }) => ({ name, label })), { name: "now", label: "read now" }];

/**
 * The parts of a bar. Every other name is a reason why tokens were read now.
 * @param {Origins} origins
 * @returns {Part[]}
 */
export function partsOf(origins) {
  const parts = KEPT.map(({ key, name, label }) => ({ name, label, tokens: origins[key] ?? 0 }));
  const kept = new Set([UNREAD, ...KEPT.map((origin) => origin.key)]);
  const read = Object.entries(origins).filter(([key]) => !kept.has(key));
  parts.push({ name: "now", label: "read now", tokens: read.reduce((sum, [, tokens]) => sum + tokens, 0) });
  parts.push({ name: "unread", label: UNREAD, tokens: origins[UNREAD] ?? 0 });
  return parts.filter((part) => part.tokens > 0);
}
