/** Conversations as JSON, to be exported and imported. */

import { newId } from "../shared/id.js";
import { asArchived, fromArchive } from "./attachments.js";
import { NO_SETTINGS } from "./conversation.js";

/** @import {Meta} from "./conversation.js" */
/** @import {Message} from "./message.js" */
/** @typedef {{leftoff: 1, conversations: {meta: Meta, messages: Message[]}[]}} Archive */

/** @param {Message} message */
export const archivedMessage = async (message) =>
  message.files ? { ...message, files: await Promise.all(message.files.map(asArchived)) } : message;

/**
 * A conversation of an archive under ids of its own, so that nothing is overwritten.
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
      created: Number(meta.created) || Date.now(),
      updated: Number(meta.updated) || Date.now(),
      leaf: renamed(meta.leaf),
      settings: { ...NO_SETTINGS, ...meta.settings },
    },
    messages: messages.map((message) => ({
      ...message,
      id: /** @type {string} */ (ids.get(message.id)),
      conversation: id,
      parent: renamed(message.parent),
      content: String(message.content ?? ""),
      files: message.files?.map(fromArchive),
      sent: message.sent?.map((other) => ids.get(other) ?? other),
    })),
  };
}
