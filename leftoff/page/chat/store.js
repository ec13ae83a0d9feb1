/** The state of the chat: the conversation that is open, the list of all, and everything that can be done to them. */

import { Cell } from "../shared/cell.js";
import { Conversation, NO_SETTINGS } from "./conversation.js";
import * as library from "./library.js";
import { newMessage } from "./message.js";
import { requestOf, streamed } from "./reply.js";

/** @import {Meta, Settings} from "./conversation.js" */
/** @import {Message, TextFile} from "./message.js" */

const DRAWN_EVERY_MS = 50;
const SAVED_EVERY_MS = 1000;

/** The conversation that is open. */
export const open = new Cell(Conversation.begun(NO_SETTINGS));
/** The heads of all conversations, the one used last first. */
export const heads = new Cell(/** @type {Meta[]} */ ([]));
/** The reply that is being written, as far as it is, and null between replies. */
export const writing = new Cell(/** @type {Message | null} */ (null));
/** What a screen reader is told. */
export const said = new Cell("");

/** @type {AbortController | null} */
let stopper = null;

/** Shows the conversation that was used last. */
export async function begin() {
  heads.value = await library.listed();
  if (heads.value.length) open.value = await library.loaded(heads.value[0]);
}

export function beginNew() {
  stop();
  open.value = Conversation.begun({ ...open.value.meta.settings });
}

/** @param {Meta} meta */
export async function show(meta) {
  if (meta.id === open.value.meta.id) return;
  stop();
  open.value = await library.loaded(meta);
}

/** @param {Meta} meta */
export async function remove(meta) {
  if (meta.id === open.value.meta.id) stop();
  await library.remove(meta.id);
  heads.value = await library.listed();
  if (meta.id === open.value.meta.id) open.value = Conversation.begun(NO_SETTINGS);
}

/** @param {unknown} archive */
export async function restore(archive) {
  const number = await library.restore(archive);
  heads.value = await library.listed();
  if (number) open.value = await library.loaded(heads.value[0]);
}

/** @param {Partial<Settings>} changes */
export async function changeSettings(changes) {
  const { settings } = open.value.meta;
  open.value = open.value.changed({ settings: { ...settings, ...changes } });
  if (open.value.messages.size) await library.saveMeta(open.value.meta);
}

/**
 * A message of the user, and the reply to it.
 * @param {string} content
 * @param {TextFile[]} files
 */
export async function send(content, files) {
  const conversation = open.value.meta.id;
  const parent = open.value.meta.leaf;
  const message = newMessage({ conversation, parent, role: "user", content, ...(files.length ? { files } : {}) });
  await add(message);
  await reply(message.id);
}

/**
 * The result of a tool call. The model goes on once all calls of its message have one.
 * @param {string} callId
 * @param {string} content
 */
export async function sendResult(callId, content) {
  const { meta } = open.value;
  await add(newMessage({ conversation: meta.id, parent: meta.leaf, role: "tool", content, callId }));
  const { path } = open.value;
  const asked = path.findLast((message) => message.role === "assistant")?.calls ?? [];
  const given = new Set(path.map((message) => message.callId));
  if (asked.every((call) => given.has(call.id))) await reply(/** @type {string} */ (open.value.meta.leaf));
}

/**
 * Another reply beside this one.
 * @param {Message} message
 */
export const regenerate = (message) => reply(message.parent);

/**
 * The message as it should have been, on a branch beside it. The user's gets a reply.
 * @param {Message} message
 * @param {string} content
 */
export async function edit(message, content) {
  const { conversation, parent, role, files, callId } = message;
  const edited = newMessage({ conversation, parent, role, content, files, callId });
  await add(edited);
  if (role !== "assistant") await reply(edited.id);
}

/**
 * Goes on with a reply that was cut off: the model is shown its own beginning.
 * @param {Message} message
 */
export async function goOn(message) {
  const path = open.value.pathTo(message.id);
  await write({ ...message, state: "writing", finish: undefined, problem: undefined }, path);
}

/** @param {Message} message */
export async function select(message) {
  open.value = open.value.showing(message.id);
  await library.saveMeta(open.value.meta);
}

/** Ends the reply that is being written; what there is of it stays. */
export function stop() {
  stopper?.abort();
}

/** @param {string | null} parent */
async function reply(parent) {
  const path = open.value.pathTo(parent);
  const conversation = open.value.meta.id;
  await write(newMessage({ conversation, parent, role: "assistant", content: "", state: "writing" }), path);
}

/**
 * @param {Message} message
 * @param {Message[]} path
 */
async function write(message, path) {
  stop();
  const own = new AbortController();
  stopper = own;
  const { settings } = open.value.meta;
  const begun = { ...message, sent: [...(settings.system.trim() ? ["system"] : []), ...path.map((each) => each.id)] };
  await add(begun);
  let body;
  try {
    body = requestOf(path, settings);
  } catch (error) {
    await add({ ...begun, state: "cut", problem: /** @type {Error} */ (error).message });
    return;
  }
  writing.value = begun;
  const draw = (/** @type {Message} */ growing) => {
    writing.value = growing;
  };
  const done = await streamed(begun, body, paced(draw, keep), own.signal);
  if (writing.value?.id === done.id) writing.value = null;
  await add(done);
  said.value = done.state === "done" ? "The reply is complete." : "The reply was cut off.";
}

/**
 * Calls `draw` at most every few milliseconds, however fast tokens come, and `store` about once a second.
 * @param {(message: Message) => void} draw
 * @param {(message: Message) => void} store
 */
function paced(draw, store) {
  let drawn = 0;
  let stored = performance.now();
  let pause = DRAWN_EVERY_MS;
  return (/** @type {Message} */ growing) => {
    const now = performance.now();
    if (now - drawn < pause) return;
    draw({ ...growing });
    if (now - stored > SAVED_EVERY_MS) {
      stored = now;
      store({ ...growing });
    }
    drawn = performance.now();
    pause = Math.max(DRAWN_EVERY_MS, 5 * (drawn - now)); // a long text takes longer to draw
  };
}

/** @param {Message} message */
function keep(message) {
  if (message.conversation === open.value.meta.id) void library.save(open.value.meta, message);
}

/**
 * Keeps a message: on disk first, and in the open conversation unless another was opened meanwhile.
 * @param {Message} message
 */
async function add(message) {
  if (message.conversation === open.value.meta.id) {
    open.value = open.value.with(message);
    await library.save(open.value.meta, message);
  } else {
    const meta = heads.value.find((each) => each.id === message.conversation);
    if (meta) await library.save(meta, message);
  }
  heads.value = await library.listed();
}
