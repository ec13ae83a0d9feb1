/** Plays the scenes of the demonstration on this server: each question once with an empty cache, once with what was read.
 *
 * A cache salt makes a tree of its own. With a new salt nothing is known: that is the cache turned off. */

import { chunksOf } from "../shared/events.js";
import { ask, askJson } from "../shared/http.js";
import { newId } from "../shared/id.js";
import { models } from "../shared/models.js";
import { pause } from "../shared/pause.js";

/** @import {Report} from "../shared/origins.js" */
/**
 * @typedef {{thread: string, num_turns: number}} Fork
 * @typedef {{label: string, thread: string, question: string, fork: Fork | null, model: number}} Step
 * @typedef {{title: string, story: string, steps: Step[], system: string, restarts: boolean, num_models: number}} Scene
 * @typedef {{role: string, content: string}} Line
 * @typedef {{text: string, ms: number, report: Report | null}} Turn
 * @typedef {"off" | "on"} Side
 */

const MAX_TOKENS = 32;
const FORGET_TRIES = 20;
const FORGET_PAUSE_MS = 250;

/** One performance: the conversations of both sides, and the salts to clean up. */
export class Performance {
  #salt = newId();
  /** @type {Set<string>} */
  #salts = new Set([this.#salt]);
  /** @type {Map<string, Line[]>} */
  #threads = new Map();

  /**
   * @param {Scene} scene
   * @param {Step} step
   * @param {Side} side
   * @param {AbortSignal} signal
   * @returns {Promise<Turn>}
   */
  async ask(scene, step, side, signal) {
    const salt = side === "on" ? this.#salt : newId();
    this.#salts.add(salt);
    const before = this.#thread(`${side} ${step.thread}`, scene, step, side);
    const messages = [...before, { role: "user", content: step.question }];
    const model = models.value[step.model]?.id;
    const body = { model, messages, cache_salt: salt, stream: true, temperature: 0, max_tokens: MAX_TOKENS };
    const turn = await streamed(body, signal);
    this.#threads.set(`${side} ${step.thread}`, [...messages, { role: "assistant", content: turn.text }]);
    if (side === "off") await this.#forget(salt);
    return turn;
  }

  async close() {
    for (const salt of this.#salts) await this.#forget(salt);
  }

  /** @param {string} salt whose request may not have ended yet, after a stop: what it read stays until then */
  async #forget(salt) {
    for (let tries = 0; tries < FORGET_TRIES; tries += 1) {
      const left = await askJson(`/cache?salt=${salt}`, { method: "DELETE" }).catch(() => ({ running: 0 }));
      if (!left.running) break;
      await pause(FORGET_PAUSE_MS);
    }
    this.#salts.delete(salt);
  }

  /**
   * @param {string} name
   * @param {Scene} scene
   * @param {Step} step
   * @param {Side} side
   * @returns {Line[]}
   */
  #thread(name, scene, step, side) {
    const known = this.#threads.get(name);
    if (known) return known;
    if (!step.fork) return [{ role: "system", content: scene.system }];
    const origin = /** @type {Line[]} */ (this.#threads.get(`${side} ${step.fork.thread}`));
    return origin.slice(0, 1 + 2 * step.fork.num_turns);
  }
}

/**
 * @param {object} body
 * @param {AbortSignal} signal
 * @returns {Promise<Turn>}
 */
async function streamed(body, signal) {
  const began = performance.now();
  const turn = { text: "", ms: 0, report: /** @type {Report | null} */ (null) };
  let id = "";
  for await (const chunk of chunksOf(await ask("/v1/chat/completions", { body, signal }))) {
    id = chunk.id;
    turn.ms ||= performance.now() - began; // its first chunk comes with the first token
    turn.text += chunk.choices[0]?.delta.content ?? "";
  }
  turn.report = await askJson(`/cache/requests/${id}`).catch(() => null);
  turn.ms = turn.report?.first_token_ms ?? turn.ms;
  return turn;
}
