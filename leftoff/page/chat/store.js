/** The state of the chat: the conversation that is open, the list of all, and what can be done to them. */

import { Cell } from "../shared/cell.js";
import { Conversation, NO_SETTINGS } from "./conversation.js";
import { forgetDraft, hasDraft } from "./drafts.js";
import * as library from "./library.js";

/** @import {Meta, Settings} from "./conversation.js" */
/** @import {Message} from "./message.js" */

/** The conversation that is open. */
export const open = new Cell(Conversation.begun(NO_SETTINGS));
/** The heads of all conversations, the one used last first. */
export const heads = new Cell(/** @type {Meta[]} */ ([]));
/** The replies that are being written, each as far as it is, by id. */
export const writing = new Cell(/** @type {Map<string, Message>} */ (new Map()));
/** The ids of the conversations in which a turn is under way. */
export const busy = new Cell(/** @type {Set<string>} */ (new Set()));
/** What a screen reader is told. */
export const said = new Cell("");

/**
 * What tabs tell each other: a conversation has changed, as its tab has kept it, or its reply is to end. One that is
 * opened gives no id: it asks where the others write.
 * @typedef {{id: string, isBusy: boolean, isStopped?: boolean}} News
 */
/** @typedef {{conversation: Conversation, stopper: AbortController}} Turn */

/** Turns that are under way, by conversation: they go on while another is open. */
export const turns = /** @type {Map<string, Turn>} */ (new Map());
/** The ids of the conversations in which other tabs write. @type {Set<string>} */
const elsewhere = new Set();
const tabs = new BroadcastChannel("leftoff");
/** The conversation without messages, which is kept for what was typed there. */
let fresh = open.value;
/** The id of the conversation that was asked for last: another may be loaded more slowly. */
let wanted = "";

/** Shows the conversation that was used last. */
export async function begin() {
  tabs.onmessage = ({ data }) => void hear(data);
  tabs.postMessage({ id: "", isBusy: false });
  addEventListener("pagehide", () => {
    for (const id of turns.keys()) tabs.postMessage({ id, isBusy: false });
  });
  heads.value = await library.listed();
  if (heads.value.length) await show(heads.value[0]);
}

/** With the settings of the one that is open, but not with what replies there have to be, or may call. */
export function beginNew() {
  wanted = "";
  const settings = { ...open.value.meta.settings, schema: "", tools: "" };
  if (fresh.messages.size || !hasDraft(fresh)) fresh = Conversation.begun(settings);
  open.value = fresh;
}

/** @param {Meta} meta */
export async function show(meta) {
  wanted = meta.id;
  const found = current(meta.id) ?? (await library.loaded(meta, elsewhere.has(meta.id)));
  if (wanted === meta.id) open.value = found;
}

/** @param {Meta} meta */
export async function remove(meta) {
  leave(meta.id);
  await library.remove(meta.id);
  heads.value = await library.listed();
  tell(meta.id);
}

/** @param {string} id of a conversation that is deleted */
function leave(id) {
  turns.get(id)?.stopper.abort();
  turns.delete(id); // what still comes is not kept
  if (id === open.value.meta.id) {
    fresh = Conversation.begun(NO_SETTINGS);
    open.value = fresh;
  }
  forgetDraft(id);
}

/** @param {string} title */
export const rename = (title) => keep(open.value.changed({ title }));

/** @param {string} archive of which the conversation that was used last is shown */
export async function restore(archive) {
  const [latest] = await library.restore(archive);
  heads.value = await library.listed();
  if (!latest) return;
  tell(latest.id);
  await show(latest);
}

/** @param {Partial<Settings>} changes */
export async function changeSettings(changes) {
  const { settings } = open.value.meta;
  const changed = open.value.changed({ settings: { ...settings, ...changes } });
  if (changed.messages.size) await keep(changed);
  else put(changed);
}

/** @param {Message} message */
export const select = (message) => keep(open.value.showing(message.id));

/**
 * @param {string} id
 * @returns {Conversation | undefined} if it is open, or a turn is under way there
 */
export const current = (id) => (id === open.value.meta.id ? open.value : turns.get(id)?.conversation);

/** @param {Conversation} conversation that has changed */
function put(conversation) {
  const { id } = conversation.meta;
  const turn = turns.get(id);
  if (turn) turn.conversation = conversation;
  if (id === fresh.meta.id) fresh = conversation;
  if (id === open.value.meta.id) open.value = conversation;
}

/**
 * Shows and saves a conversation that has changed, and lists it as it is now.
 * @param {Conversation} conversation
 * @param {...Message} changed
 */
async function keep(conversation, ...changed) {
  put(conversation);
  await library.save(conversation, ...changed);
  tell(conversation.meta.id);
  heads.value = await library.listed();
}

/** Ends the reply that is being written in the open conversation, by whichever tab; what there is of it stays. */
export function stop() {
  const { id } = open.value.meta;
  turns.get(id)?.stopper.abort();
  if (elsewhere.delete(id)) tabs.postMessage({ id, isBusy: true, isStopped: true });
  countBusy(); // a tab that is not there any more does not answer
}

/** @param {string} id of a conversation that other tabs find changed now, or deleted */
export const tell = (id) => tabs.postMessage({ id, isBusy: turns.has(id) });

export function countBusy() {
  busy.value = new Set([...turns.keys(), ...elsewhere]);
}

/** @param {News} news of another tab */
async function hear(news) {
  const { id, isBusy, isStopped } = news;
  if (!id) return [...turns.keys()].forEach(tell);
  if (isStopped) return turns.get(id)?.stopper.abort();
  if (isBusy) elsewhere.add(id);
  else elsewhere.delete(id);
  countBusy();
  const own = current(id);
  heads.value = await library.listed();
  const meta = heads.value.find((each) => each.id === id);
  if (own && !meta) return leave(id);
  const found = own && meta && (await library.loaded(meta, isBusy || turns.has(id)));
  if (!found) return;
  if (own !== current(id)) return hear(news); // it has changed here meanwhile
  put(own.beside(found, turns.has(id)));
}

/**
 * Keeps a message, unless its conversation was deleted meanwhile.
 * @param {Message} message
 */
export async function add(message) {
  const conversation = current(message.conversation)?.with(message);
  if (conversation) await keep(conversation, message);
}
