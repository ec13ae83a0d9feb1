/** A reply while it is written: asks for it, and puts together what the stream brings. */

import { chunksOf } from "../shared/events.js";
import { ApiError, ask, askJson, problemWith } from "../shared/http.js";
import { pause } from "../shared/pause.js";
import { reasonOf } from "../shared/reason.js";
import { asSent } from "./message.js";

/** @import {Settings} from "./conversation.js" */
/** @import {Message} from "./message.js" */

const NUMBERS = /** @type {const} */ ([
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "repeat_penalty",
  "max_tokens",
  "seed",
]);
const REPORT_TRIES = 8;
const REPORT_PAUSE_MS = 200;

/**
 * The body of a request. Throws if the schema or the tools are no JSON.
 * @param {Message[]} path
 * @param {Settings} settings
 */
export async function requestOf(path, settings) {
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  /** @type {Record<string, unknown>} */
  const body = { messages: [...system, ...(await Promise.all(path.map(asSent)))], stream: true, return_progress: true };
  if (settings.model) body.model = settings.model;
  for (const name of NUMBERS) if (settings[name].trim()) body[name] = Number(settings[name]);
  if (settings.schema.trim()) {
    const schema = parsed(settings.schema, "the JSON schema");
    body.response_format = { type: "json_schema", json_schema: { name: "reply", schema } };
  }
  if (settings.tools.trim()) body.tools = parsed(settings.tools, "the list of tools");
  if (settings.thinking) body.enable_thinking = settings.thinking === "on";
  return body;
}

/**
 * @param {string} text
 * @param {string} name
 */
function parsed(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} in the settings is not JSON: ${reasonOf(error)}`);
  }
}

/**
 * Streams a reply into `message`, and calls `onGrown` with it after each event. It never throws: what goes wrong is in
 * the message.
 * @param {Message} message
 * @param {object} body
 * @param {(message: Message) => void} onGrown
 * @param {AbortSignal} signal
 * @returns {Promise<Message>}
 */
export async function streamed(message, body, onGrown, signal) {
  const growing = { ...message, calls: [...(message.calls ?? [])] };
  let requestId = "";
  try {
    const response = await ask("/v1/chat/completions", { body, signal });
    for await (const chunk of chunksOf(response)) {
      requestId = chunk.id;
      grow(growing, chunk);
      onGrown(growing);
    }
    growing.state = growing.finish ? "done" : "cut";
    if (!growing.finish) growing.problem = "The connection ended before the reply did.";
  } catch (error) {
    growing.state = "cut";
    growing.problem = signal.aborted ? undefined : problemWith(error);
  }
  growing.progress = undefined;
  if (signal.aborted) await pause(REPORT_PAUSE_MS);
  growing.report = requestId ? await reportOf(requestId) : undefined;
  return growing;
}

/**
 * @param {Message} message
 * @param {any} chunk
 */
function grow(message, chunk) {
  message.model = chunk.model;
  if (chunk.prompt_progress) message.progress = chunk.prompt_progress;
  const [choice] = chunk.choices;
  if (!choice) return;
  const { delta, finish_reason: finish } = choice;
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) growCall(message, call);
  if (finish) message.finish = finish;
}

/**
 * @param {Message} message
 * @param {any} call
 */
function growCall(message, call) {
  message.calls ??= [];
  message.calls[call.index] ??= { id: "", name: "", arguments: "" };
  const known = message.calls[call.index];
  if (call.id) known.id = call.id;
  known.name += call.function.name ?? "";
  known.arguments += call.function.arguments ?? "";
}

/**
 * The server's report on a request, which it writes when the request has ended: after a stop, a moment later.
 * @param {string} id
 */
async function reportOf(id) {
  for (let tries = 0; tries < REPORT_TRIES; tries += 1) {
    try {
      return await askJson(`/cache/requests/${id}`);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) return undefined;
      await pause(REPORT_PAUSE_MS);
    }
  }
  return undefined;
}
