/** What the cache does, as it does it: the server's events while this view is in sight, and the tree after each change. */

import { Cell } from "../shared/cell.js";
import { eventsOf } from "../shared/events.js";
import { ApiError, apiKey, ask, askJson, problemWith } from "../shared/http.js";
import { query } from "../shared/models.js";
import { pause } from "../shared/pause.js";

/** @import {Origins, Report} from "../shared/origins.js" */
/**
 * @typedef {{position: number, tier: "RAM" | "disk" | "store", bytes: number, hits: number, is_pinned: boolean}} Point
 * @typedef {{id: string, parent: string | null, start: number, end: number, age_s: number, slots: number[],
 *   ram_tokens: number, ram_bytes: number, disk_tokens: number, disk_bytes: number, store_tokens: number, store_bytes: number, points: Point[], lead: string, text: string,
 *   is_found: boolean}} TreeNode
 * @typedef {{namespace: string, is_whole: boolean, nodes: TreeNode[], model?: string}} Tree of several models, each says whose it is
 * @typedef {{name: string, used_bytes: number, budget_bytes: number, entries: number, evictions?: number,
 *   written_bytes?: number, most_bytes?: number}} Tier
 * @typedef {{at: number, requests: number, prompt_tokens: number, reused: number, saved_ms: number, origins: Origins}} Sums
 * @typedef {Sums & {conversation: string, title: string, model: string}} Talk
 * @typedef {Sums & {client: string, conversations: number, latest: Talk[]}} Client
 * @typedef {{id: number, is_busy: boolean, tokens?: number, model?: string}} Slot
 * @typedef {{requests: number, reused_tokens: number, computed_tokens: number, generated_tokens: number,
 *   read_ahead_tokens: number, prompt_seconds: number, saved_seconds: number, started_at: number}} Totals
 * @typedef {{tiers: Tier[], slots: Slot[], context_tokens: number, running: number, waiting: number, totals: Totals,
 *   models?: Record<string, {tiers: Tier[], running: number, waiting: number, totals: Totals}>}} State sums, and each model
 */

const MAX_REPORTS = 100;
const TREE_PAUSE_MS = 1000;
const RECONNECT_MS = 2000;

export const state = new Cell(/** @type {State | null} */ (null));
export const reports = new Cell(/** @type {Report[]} */ ([]));
export const trees = new Cell(/** @type {Tree[] | null} */ (null)); // null: not read yet
export const clients = new Cell(/** @type {Client[]} */ ([]));
export const wanted = new Cell("");
/** Why there is nothing new; empty while the server is heard. */
export const silence = new Cell("");

/** Follows the server until the returned function is called. A page that is not seen does not listen. */
export function follow() {
  let own = new AbortController();
  const turn = () => {
    own.abort();
    own = new AbortController();
    if (!document.hidden) void listen(own.signal);
  };
  document.addEventListener("visibilitychange", turn);
  const forget = [wanted.follow(() => void readTree()), apiKey.follow(turn)];
  turn();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    for (const each of forget) each();
    own.abort();
  };
}

/** @param {AbortSignal} signal */
async function listen(signal) {
  while (!signal.aborted) {
    try {
      const response = await ask("/cache/events", { signal }); // first: what ends while the rest is read is not missed
      reports.value = (await askJson(`/cache/requests?n=${MAX_REPORTS}`, { signal })).requests;
      await readAll();
      silence.value = "";
      for await (const { name, data } of eventsOf(response)) take(name, JSON.parse(data));
      silence.value = "The server has ended the stream of events.";
    } catch (error) {
      if (signal.aborted) return;
      silence.value = problemWith(error);
      if (error instanceof ApiError && error.status === 401) return; // until there is a key
    }
    await pause(RECONNECT_MS);
  }
}

/**
 * @param {string} name
 * @param {any} content
 */
function take(name, content) {
  if (name === "state") state.value = content;
  else if (!reports.value.some(({ id, at }) => id === content.id && at === content.at))
    reports.value = [content, ...reports.value].slice(0, MAX_REPORTS);
  readSoon();
}

/** @type {number | undefined} */
let timer;

function readSoon() {
  if (timer !== undefined) return;
  timer = window.setTimeout(() => {
    timer = undefined;
    void readAll();
  }, TREE_PAUSE_MS);
}

const readAll = () => Promise.all([readTree(), readClients()]);

async function readClients() {
  try {
    clients.value = (await askJson("/cache/clients")).clients;
  } catch {
    // as below
  }
}

let asked = 0;
let answered = 0;

async function readTree() {
  asked += 1;
  const own = asked;
  try {
    const answer = await askJson(`/cache/tree?q=${encodeURIComponent(wanted.value)}`);
    if (own < answered) return; // a later question, perhaps for other words, was answered before
    answered = own;
    trees.value = answer.trees;
  } catch {
    // the stream of events tells what is wrong
  }
}

/**
 * Pins a path, lets it go, or drops it, and reads the tree anew.
 * @param {"POST" | "DELETE"} method
 * @param {string} path
 * @param {string} [model] whose path it is, where there are several
 */
export async function change(method, path, model) {
  const answer = await askJson(`/cache/tree/${path}${query(model)}`, { method });
  await readTree();
  return answer;
}
