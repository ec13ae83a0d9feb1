/** Conversations as JSON, to be exported and imported. */

import { newId } from "../shared/id.js";
import { asArchived, fromArchive } from "./attachments.js";
import { NO_SETTINGS } from "./conversation.js";

/** @import {Meta, Settings} from "./conversation.js" */
/** @import {Message} from "./message.js" */
/** @typedef {{leftoff: 1, conversations: {meta: Meta, messages: Message[]}[]}} Archive */

/** @param {Message} message */
export const archivedMessage = async (message) =>
  message.files ? { ...message, files: await Promise.all(message.files.map(asArchived)) } : message;

/** @param {number | undefined} time */
function timeOf(time) {
  const ms = new Date(time ?? Number.NaN).getTime();
  return Number.isNaN(ms) ? Date.now() : ms;
}

/**
 * A conversation of an archive under ids of its own, so that nothing is overwritten. What is drawn has the form that it
 * must have, whoever wrote the file: a page that cannot draw what it keeps could not be used any more.
 * @param {Meta} meta
 * @param {Message[]} messages
 */
export function withNewIds(meta, messages) {
  const ids = new Map(messages.map((message) => [message.id, newId()]));
  const renamed = (/** @type {string | null} */ id) => (id === null ? null : (ids.get(id) ?? null));
  const id = newId();
  return {
    meta: {
      id,
      title: String(meta.title ?? ""),
      created: timeOf(meta.created),
      updated: timeOf(meta.updated),
      leaf: renamed(meta.leaf),
      settings: settingsOf(meta.settings),
    },
    messages: messages.map((message) => ({
      ...message,
      id: /** @type {string} */ (ids.get(message.id)),
      conversation: id,
      parent: renamed(message.parent),
      content: String(message.content ?? ""),
      created: timeOf(message.created),
      reasoning: message.reasoning && String(message.reasoning),
      calls: message.calls?.map(({ id, name, arguments: given }) => ({
        id: String(id),
        name: String(name),
        arguments: String(given ?? ""),
      })),
      report: message.report?.origins && message.report.reasons && message.report.notes ? message.report : undefined,
      files: message.files?.map(fromArchive),
      sent: message.sent?.map((other) => ids.get(other) ?? other),
    })),
  };
}

/**
 * @param {Partial<Settings> | undefined} given
 * @returns {Settings}
 */
function settingsOf(given) {
  const texts = Object.keys(NO_SETTINGS).map((name) => [
    name,
    String(given?.[/** @type {keyof Settings} */ (name)] ?? ""),
  ]);
  return Object.fromEntries(texts);
}
