/** Turns: a message, an edit or a new branch, and the reply to it, which is written whichever conversation is open. */

import { reasonOf } from "../shared/reason.js";
import * as library from "./library.js";
import { newMessage } from "./message.js";
import { requestOf, streamed } from "./reply.js";
import { add, countBusy, current, open, said, stop, tell, turns, writing } from "./store.js";

/** @import {Attachment, Message} from "./message.js" */
/** @import {Turn} from "./store.js" */

const DRAWN_EVERY_MS = 50;
const SAVED_EVERY_MS = 1000;

/**
 * A message of the user, and the reply to it.
 * @param {string} content
 * @param {Attachment[]} files
 */
export const send = (content, files) =>
  take(async (turn) => {
    const { id: conversation, leaf: parent } = turn.conversation.meta;
    const message = newMessage({ conversation, parent, role: "user", content, ...(files.length ? { files } : {}) });
    await add(message);
    await reply(turn, message.id);
  });

/**
 * The result of a tool call. The model goes on once all calls of its message have one.
 * @param {string} callId
 * @param {string} content
 */
export const sendResult = (callId, content) =>
  take(async (turn) => {
    const { id: conversation, leaf: parent } = turn.conversation.meta;
    const message = newMessage({ conversation, parent, role: "tool", content, callId });
    await add(message);
    const path = turn.conversation.pathTo(message.id);
    const asked = path.findLast((each) => each.role === "assistant")?.calls ?? [];
    const given = new Set(path.map((each) => each.callId));
    if (asked.every((call) => given.has(call.id))) await reply(turn, message.id);
  });

/**
 * Another reply beside this one.
 * @param {Message} message
 */
export const regenerate = (message) => take((turn) => reply(turn, message.parent));

/**
 * The message as it should have been, on a branch beside it. The user's gets a reply.
 * @param {Message} message
 * @param {string} content
 */
export const edit = (message, content) =>
  take(async (turn) => {
    const { conversation, parent, role, files, callId } = message;
    const edited = newMessage({ conversation, parent, role, content, files, callId });
    await add(edited);
    if (role !== "assistant") await reply(turn, edited.id);
  });

/**
 * Goes on with a reply that was cut off: the model is shown its own beginning.
 * @param {Message} message
 */
export const goOn = (message) =>
  take((turn) => {
    const path = turn.conversation.pathTo(message.id);
    return write(turn, { ...message, state: "writing", finish: undefined, problem: undefined }, path);
  });

/**
 * A turn of the open conversation. One that is under way there is stopped; those of others go on.
 * @param {(turn: Turn) => Promise<void>} work
 */
async function take(work) {
  stop();
  const { id } = open.value.meta;
  const own = { conversation: open.value, stopper: new AbortController() };
  turns.set(id, own);
  countBusy();
  try {
    await work(own);
  } finally {
    if (turns.get(id) === own) turns.delete(id);
    countBusy();
    tell(id);
  }
}

/**
 * @param {Turn} turn
 * @param {string | null} parent
 */
async function reply(turn, parent) {
  const { id: conversation } = turn.conversation.meta;
  const message = newMessage({ conversation, parent, role: "assistant", content: "", state: "writing" });
  await write(turn, message, turn.conversation.pathTo(parent));
}

/**
 * @param {Turn} turn
 * @param {Message} message
 * @param {Message[]} path
 */
async function write({ conversation, stopper }, message, path) {
  const { settings, title } = conversation.meta;
  const begun = { ...message, sent: [...(settings.system.trim() ? ["system"] : []), ...path.map((each) => each.id)] };
  await add(begun);
  let body;
  try {
    body = await requestOf(path, settings);
  } catch (error) {
    await add({ ...begun, state: "cut", problem: reasonOf(error) });
    return;
  }
  const draw = (/** @type {Message} */ growing) => {
    writing.value = new Map(writing.value).set(growing.id, growing);
  };
  draw(begun);
  const done = await streamed(begun, body, paced(draw, keep), stopper.signal);
  await add(done);
  writing.value = new Map([...writing.value].filter(([id]) => id !== done.id));
  const which = done.conversation === open.value.meta.id ? "The reply" : `The reply in “${title}”`;
  said.value = `${which} ${done.state === "done" ? "is complete" : "was cut off"}.`;
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
  const conversation = current(message.conversation);
  if (conversation) void library.save(conversation, message).then(() => tell(message.conversation));
}
