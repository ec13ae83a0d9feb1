/** The conversations that this browser keeps, in IndexedDB: their heads in one store, their messages in another. What it
 * has no room for is here until the page is closed, and is kept once there is room. */

import { Cell } from "../shared/cell.js";
import { reasonOf } from "../shared/reason.js";
import { archivedMessage, withNewIds } from "./archive.js";
import { Conversation } from "./conversation.js";

/** @import {Meta} from "./conversation.js" */
/** @import {Message} from "./message.js" */
/** @import {Archive} from "./archive.js" */

const HEADS = "conversations";
const MESSAGES = "messages";

/** Conversations that are not kept, or not as they are now, by id. */
export const unkept = new Cell(/** @type {Map<string, Conversation>} */ (new Map()));
/** Why. */
export const refusal = new Cell("");

/** @type {Promise<IDBDatabase> | undefined} */
let opened;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("leftoff", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(HEADS, { keyPath: "id" });
      request.result.createObjectStore(MESSAGES, { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/**
 * Runs a transaction; resolves once it is on disk.
 * @template T
 * @param {IDBTransactionMode} mode
 * @param {(heads: IDBObjectStore, messages: IDBObjectStore) => IDBRequest<T> | void} work
 * @returns {Promise<T>} the result of the request that `work` returned
 */
async function transact(mode, work) {
  const transaction = (await database()).transaction([HEADS, MESSAGES], mode);
  const request = work(transaction.objectStore(HEADS), transaction.objectStore(MESSAGES));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(/** @type {T} */ (request ? request.result : undefined));
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** Some browsers have no database, in a private window for example. */
const hasDatabase = () =>
  database().then(
    () => true,
    () => false,
  );

/** @returns {Promise<Meta[]>} the one used last first */
export async function listed() {
  const all = transact("readonly", (store) => /** @type {IDBRequest<Meta[]>} */ (store.getAll()));
  const kept = await all.catch(() => /** @type {Meta[]} */ ([]));
  const heads = [
    ...kept.filter(({ id }) => !unkept.value.has(id)),
    ...[...unkept.value.values()].map(({ meta }) => meta),
  ];
  return byLastUse(heads);
}

/** @param {Meta[]} heads */
const byLastUse = (heads) => heads.sort((one, other) => other.updated - one.updated);

/**
 * @param {Meta} meta
 * @param {boolean} isWritten by another tab, now
 * @returns {Promise<Conversation>} in the order in which its messages were written
 */
export async function loaded(meta, isWritten) {
  const own = unkept.value.get(meta.id);
  if (own) return own;
  const found = await messagesOf(meta.id);
  return new Conversation(meta, new Map(found.map((message) => [message.id, isWritten ? message : settled(message)])));
}

/** @param {string} id */
async function messagesOf(id) {
  const own = unkept.value.get(id);
  if (own) return [...own.messages.values()];
  const work = (/** @type {IDBObjectStore} */ _, /** @type {IDBObjectStore} */ messages) =>
    /** @type {IDBRequest<Message[]>} */ (messages.index("conversation").getAll(id));
  const found = await transact("readonly", work);
  return found.sort((one, other) => one.created - other.created);
}

/**
 * A reply that was being written when the page was closed.
 * @param {Message} message
 * @returns {Message}
 */
function settled(message) {
  if (message.state !== "writing") return message;
  return { ...message, state: "cut", progress: undefined, problem: "The page was closed while this was written." };
}

/**
 * Keeps the head of a conversation and messages of it, or all of them if it was not kept before. Never throws.
 * @param {Conversation} conversation
 * @param {...Message} changed
 */
export async function save(conversation, ...changed) {
  const { meta } = conversation;
  const messages = unkept.value.has(meta.id) ? [...conversation.messages.values(), ...changed] : changed;
  try {
    await transact("readwrite", (heads, store) => {
      heads.put(meta);
      for (const message of messages) store.put(message);
    });
    forget(meta.id);
  } catch (error) {
    refusal.value = refused(error);
    unkept.value = new Map(unkept.value).set(meta.id, conversation);
  }
}

/** @param {string} id of a conversation that is kept now, or deleted */
function forget(id) {
  if (unkept.value.has(id)) unkept.value = new Map([...unkept.value].filter(([other]) => other !== id));
}

/** @param {unknown} error */
function refused(error) {
  const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
  return isFull ? "This browser has no room left" : `This browser keeps nothing (${reasonOf(error)})`;
}

/** @param {string} id */
export async function remove(id) {
  forget(id);
  if (!(await hasDatabase())) return;
  const found = await messagesOf(id);
  await transact("readwrite", (heads, messages) => {
    heads.delete(id);
    for (const message of found) messages.delete(message.id);
  });
  for (const conversation of unkept.value.values()) await save(conversation); // there is room now, perhaps
}

/**
 * The conversations in which a text occurs, whatever its case.
 * @param {string} text
 * @returns {Promise<Set<string>>}
 */
export async function found(text) {
  const wanted = text.toLowerCase();
  const has = (/** @type {string | undefined} */ words) => (words ?? "").toLowerCase().includes(wanted);
  const all = transact("readonly", (_, messages) => /** @type {IDBRequest<Message[]>} */ (messages.getAll()));
  const kept = await all.catch(() => /** @type {Message[]} */ ([]));
  const messages = [
    ...kept.filter(({ conversation }) => !unkept.value.has(conversation)),
    ...[...unkept.value.values()].flatMap((conversation) => [...conversation.messages.values()]),
  ];
  const inMessages = messages.filter((message) => has(message.content) || has(message.reasoning));
  const inHeads = (await listed()).filter((meta) => has(meta.title) || has(meta.settings.system));
  return new Set([...inMessages.map((message) => message.conversation), ...inHeads.map((meta) => meta.id)]);
}

/**
 * @param {Meta[]} metas
 * @returns {Promise<Archive>}
 */
export async function archived(metas) {
  const conversations = await Promise.all(
    metas.map(async (meta) => ({
      meta,
      messages: await Promise.all((await messagesOf(meta.id)).map(archivedMessage)),
    })),
  );
  return { leftoff: 1, conversations };
}

/**
 * @param {string} archive
 * @returns {Partial<Archive>} empty of a file that is no JSON
 */
function parsed(archive) {
  try {
    return JSON.parse(archive) ?? {};
  } catch {
    return {};
  }
}

/**
 * Adds the conversations of an archive under new ids, so that nothing is overwritten.
 * @param {string} archive
 * @returns {Promise<Meta[]>} their heads, the one used last first
 */
export async function restore(archive) {
  const { leftoff, conversations } = parsed(archive);
  if (leftoff !== 1 || !Array.isArray(conversations)) {
    throw new Error("it holds no conversations of leftoff. Choose a file that Export has written");
  }
  const renamed = conversations.map(({ meta, messages }) => withNewIds(meta, messages));
  const work = (/** @type {IDBObjectStore} */ heads, /** @type {IDBObjectStore} */ store) => {
    for (const { meta, messages } of renamed) {
      heads.put(meta);
      for (const message of messages) store.put(message);
    }
  };
  await transact("readwrite", work).catch((error) => {
    throw new Error(refused(error));
  });
  return byLastUse(renamed.map(({ meta }) => meta));
}
